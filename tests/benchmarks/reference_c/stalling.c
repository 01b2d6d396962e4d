/* The stalling queue's mean number: the algorithm of hetjax/models/stalling over its whole domain (K and M may be
 * infinite), for MM fast and NN slow servers known to the compiler (-DMM=5 -DNN=2), without checks of the domain.
 *
 * A vector holds W points; UU vectors go through the phases side by side, so that their recursions, each a chain of
 * dependent operations, fill the pipelines. By hand: the recursion over levels divided by b, so that a step is two
 * fused operations with factors kept for all phases; no more of the Poisson recursion than the mean needs; compensated
 * products as one fused operation each.
 */
#include <pthread.h>
#include <stddef.h>

#include "vectors.h"

#ifndef UU
#define UU 4
#endif
#define CHUNK 16 /* steps of the recursion over levels between two divisions */

typedef struct { V x, ratio, decay, plain, lagging, ascending; T rising; } Geometric;

/* hetjax.models.stalling.weights.fold with hetjax.numerics.geometric */
INLINE Geometric fold(V log_ratio, V ratio, V inverse, V terms)
{
    static const double bernoulli[] = {-2.174868698558062e-16, 8.586062056277845e-15, -3.3896802963225827e-13,
        1.338253653068468e-11, -5.284190138687493e-10, 2.08767569878681e-08, -8.267195767195768e-07,
        3.3068783068783064e-05, -0.001388888888888889, 0.08333333333333333};
    T rising = lt(all(0), log_ratio);
    V s = size(log_ratio), x = -s;
    ratio = pick(rising, inverse, ratio);
    s = s * terms;
    Decay d = decay(s);
    T near = lt(all(-1), x);
    V gap = pick(near, all(-1), ratio - 1.0);
    V per_both = 1.0 / (least(x, all(-2.2250738585072014e-308)) * gap);
    V z = x * x, c = all(bernoulli[0]);
    for (int i = 1; i < 10; i++) c = c * z + bernoulli[i];
    V lead = x * c, per_x = per_both * gap;
    V h0 = pick(d.near, terms * (1.0 - s * d.series), -d.lost * per_x);
    V h1 = pick(d.near, terms * terms * (1.0 - (1.0 + s) * d.series), (terms * d.kept - h0) * per_x);
    V per = pick(near, 1.0 + x * (lead - 0.5), x * (x * per_both));
    V lag = pick(near, 0.5 + lead, (ratio * x - gap) * per_both);
    V plain = h0 * per, second = h1 * per;
    return (Geometric){x, ratio, d.kept, plain, second - plain * lag, ratio * (second + plain * (1.0 - lag)), rising};
}

typedef struct { V q, r, K, M, b, per_b, per_r, t, one, exponent, X, before; } Point;

/* t_0 of hetjax.models.stalling.recursion.phases for UU vectors of points */
INLINE void phases(Point *p)
{
    const double m = MM;
    V base[UU], k[UU], scale[UU], inverse[UU], steps[MM][UU];
    for (int l = 1; l < MM; l++)
        for (int u = 0; u < UU; u++) steps[l][u] = p[u].per_b * (double)l;
    for (int u = 0; u < UU; u++) {
        p[u].t = p[u].one = p[u].before = all(1);
        p[u].exponent = all(0);
        base[u] = p[u].b - m;
        k[u] = p[u].K + 1.0;
        scale[u] = p[u].per_r * p[u].per_b;
        inverse[u] = p[u].per_b * (1 / m);
    }
    for (int j = NN; j > 0; j--) {
        V Y[UU], w[UU], a[UU], over[UU];
        for (int u = 0; u < UU; u++) {
            Y[u] = w[u] = all(1);
            a[u] = p[u].per_r * (double)j;
            over[u] = a[u] * p[u].per_b;
        }
#pragma GCC unroll 16
        for (int l = 1; l < MM; l++) {
            for (int u = 0; u < UU; u++) {
                w[u] = over[u] * Y[u] + w[u];
                Y[u] = Y[u] * steps[l][u] + w[u];
            }
            if (l % CHUNK == 0 && l + 1 < MM)
                for (int u = 0; u < UU; u++) {
                    Y[u] = Y[u] / w[u];
                    w[u] = all(1);
                }
        }
        for (int u = 0; u < UU; u++) {
            V b = p[u].b, B = base[u] - a[u], ab = a[u] * b;
            V D = root(B * B + ab * 4.0);
            V large = (size(B) + D) * 0.5;
            V growth = D * ((a[u] + b + m + D) * 0.5) * inverse[u];
            Decay d = decay(k[u] * log_near(1.0 + growth, growth));
            V both_parts = large * D * d.kept, lost = large * d.lost;
            V square = large * lost, mixed = ab * d.lost;
            T negative = lt(B, all(0));
            V up = pick(negative, square, mixed) + both_parts, down = pick(negative, mixed, square) + both_parts;
            V X = (up * Y[u] + b * lost * w[u]) / (a[u] * lost * Y[u] + down * w[u]);
            p[u].X = X;
            p[u].before = p[u].t;
            p[u].t = X * scale[u] * (double)(NN + 1 - j) * p[u].t + p[u].one;
            if (55 * NN >= 1024) {
                T huge = lt(all(0x1p256), p[u].t);
                if (any(huge)) {
                    V shrink = pick(huge, all(0x1p-512), all(1));
                    p[u].t = p[u].t * shrink;
                    p[u].one = p[u].one * shrink;
                    p[u].before = p[u].before * shrink;
                    p[u].exponent = p[u].exponent + pick(huge, all(512), all(0));
                }
            }
        }
    }
}

INLINE V finish(const Point *p)
{
    const double m = MM, n = NN;
    V q = p->q, r = p->r, b = p->b, one = all(1), zero = all(0);
    V capacity = r * m + n, per_capacity = 1.0 / capacity;
    Geometric buffer = fold(log_near(q, q - 1.0), q, p->per_b * m, p->K);
    /* rho - 1 = (m r (q-1) - n)/(m r + n), the numerator from fused products */
    V d = q - 1.0, high = r * m, low = fused(r, all(m), -high), product = high * d;
    V lost = fused(high, d, -product), difference = product - n;
    V part = difference - product, rounding = (product - (difference - part)) + (-n - part);
    V excess = (difference + (rounding + (lost + low * d))) * per_capacity;
    V rho = q * (high * per_capacity);
    Geometric waiting = fold(log_near(rho, excess), rho, capacity * p->per_r * p->per_b, p->M);
    /* the levels below m */
    V before = zero, inverse = p->per_b;
    for (int s = 1; s < MM; s++) {
        before = inverse;
        inverse = (inverse + 1.0) * (p->per_b * (s + 1.0));
    }
    before = least(before, all(0x1p1020));
    V share = 1.0 / (1.0 + before);
    V tail = pick(lt(before, all(0x1p1020)), b * share * (1 / m), zero), mean = b * (before * share);
    V log_h0 = log_near(p->t, p->t - 1.0) + p->exponent * 0.6931471805599453;
    V slow = n * p->X * (p->before / p->t);
    V lead = log_h0 + pick(waiting.rising, waiting.x * p->M, zero) - pick(buffer.rising, zero, buffer.x * p->K);
    T saturated = lt(lead, zero);
    V scale = decay(size(lead)).kept;
    V rest = pick(saturated, scale, one);
    V level = tail * rest, below = pick(buffer.rising, buffer.decay, one) * rest;
    V line = tail * pick(saturated, one, scale);
    V plain = pick(waiting.rising, waiting.plain, waiting.ratio * waiting.plain);
    V top = level * pick(buffer.rising, one, buffer.decay);
    V sums = buffer.ratio * buffer.plain + 1.0;
    V total = below + level * sums + line * plain;
    V room = p->K + m, tail_places = pick(saturated, p->M + n, zero);
    V start = pick(buffer.rising, room + tail_places, zero);
    V levels = pick(buffer.rising, -buffer.ascending - tail_places * sums, sums * m + buffer.ascending);
    V climbing = pick(waiting.rising, p->M * plain - waiting.lagging, waiting.ascending);
    V ahead = pick(buffer.rising, zero, room) + n;
    V along = pick(saturated, -waiting.lagging, climbing + ahead * plain);
    return start + (below * (mean - start) + level * levels + top * slow + line * along) / total;
}

typedef struct { const double *q, *r, *K, *M; double *out; size_t start, stop; } Part;

static void *run(void *argument)
{
    const Part *part = argument;
    for (size_t i = part->start; i < part->stop; i += UU * W) {
        Point p[UU];
        for (int u = 0; u < UU; u++) {
            size_t at = i + u * W;
            p[u].q = load(part->q + at);
            p[u].r = load(part->r + at);
            p[u].K = least(load(part->K + at), all(1e25));
            p[u].M = least(load(part->M + at), all(1e25));
            p[u].b = p[u].q * (double)MM;
            p[u].per_b = 1.0 / p[u].b;
            p[u].per_r = 1.0 / p[u].r;
        }
        phases(p);
        for (int u = 0; u < UU; u++) store(part->out + i + u * W, finish(p + u));
    }
    return NULL;
}

/* ``count``, a multiple of ``threads`` UU W, points on one or two threads; 0 if a thread could be started */
int mean_numbers(const double *q, const double *r, const double *K, const double *M, double *out, size_t count,
                 int threads)
{
    Part first = {q, r, K, M, out, 0, count / threads}, second = {q, r, K, M, out, count / threads, count};
    pthread_t other;
    if (threads == 2 && pthread_create(&other, NULL, run, &second)) return 1;
    run(&first);
    return threads == 2 ? pthread_join(other, NULL) : 0;
}
