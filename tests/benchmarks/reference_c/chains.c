/* Chain solvers, W points a vector, SS states or phases known to the compiler: the eliminations of hetjax.ctmc without
 * subtractions, in the plainest order, everything in vectors of points.
 *
 * level_means: the mean level of chains with ``levels`` levels of SS phases, whose rates are those of
 *     ctmc_solvers.py: up climb p0, inside p1 + p3/10 (no diagonal), down fall p2 (1 + l/10); p is (4, count).
 * laws: the stationary laws (count, SS) of dense rates (count, SS, SS).
 */
#include <pthread.h>
#include <stddef.h>

#include "vectors.h"

#define UNROLL _Pragma("GCC unroll 8")

/* rates[k][0..k-1] and right[k] over their pivot, the rest of the elimination added to the rows before */
#define ELIMINATE(rates, exits, right, columns)                                                              \
    for (int k = SS - 1; k >= 0; k--) {                                                                      \
        V pivot = exits[k];                                                                                  \
        UNROLL for (int j = 0; j < k; j++) pivot += rates[k][j];                                             \
        V per = 1.0 / pivot;                                                                                 \
        exits[k] *= per;                                                                                     \
        UNROLL for (int j = 0; j < k; j++) rates[k][j] *= per;                                               \
        UNROLL for (int j = 0; j < columns; j++) right[k][j] *= per;                                         \
        UNROLL for (int i = 0; i < k; i++) {                                                                 \
            V rate = rates[i][k];                                                                            \
            exits[i] += rate * exits[k];                                                                     \
            UNROLL for (int j = 0; j < k; j++) rates[i][j] += rate * rates[k][j];                            \
            UNROLL for (int j = 0; j < columns; j++) right[i][j] += rate * right[k][j];                      \
        }                                                                                                    \
    }

/* the stationary measure of the closed chain ``rates``, which is overwritten */
INLINE void measure(V rates[SS][SS], V x[SS])
{
    V per[SS];
    UNROLL for (int k = SS - 1; k > 0; k--) {
        V pivot = rates[k][0];
        UNROLL for (int j = 1; j < k; j++) pivot += rates[k][j];
        per[k] = 1.0 / pivot;
        UNROLL for (int j = 0; j < k; j++) rates[k][j] *= per[k];
        UNROLL for (int i = 0; i < k; i++) {
            V rate = rates[i][k];
            UNROLL for (int j = 0; j < k; j++) rates[i][j] += rate * rates[k][j];
        }
    }
    x[0] = all(1);
    UNROLL for (int k = 1; k < SS; k++) {
        V inflow = x[0] * rates[0][k];
        UNROLL for (int j = 1; j < k; j++) inflow += x[j] * rates[j][k];
        x[k] = inflow * per[k];
    }
}

static void level_mean(const double *climb, const double *inside, const double *fall, int levels, const V p[4], V *out)
{
    V rates[SS][SS], collected[SS][2], unit = all(1);
    V spread = p[3] * 0.1;
    UNROLL for (int i = 0; i < SS; i++) {
        UNROLL for (int j = 0; j < SS; j++) rates[i][j] = p[1] * inside[i * SS + j] + spread;
        collected[i][0] = unit;
        collected[i][1] = unit * (levels - 1.0);
    }
    for (int l = levels - 1; l > 0; l--) {
        V right[SS][SS + 2], exits[SS], speed = p[2] * (1 + 0.1 * l);
        UNROLL for (int i = 0; i < SS; i++) {
            exits[i] = all(0);
            UNROLL for (int j = 0; j < SS; j++) {
                right[i][j] = speed * fall[i * SS + j];
                exits[i] += right[i][j];
            }
            right[i][SS] = collected[i][0];
            right[i][SS + 1] = collected[i][1];
        }
        ELIMINATE(rates, exits, right, (SS + 2))
        UNROLL for (int k = 1; k < SS; k++)
            UNROLL for (int i = 0; i < k; i++)
                UNROLL for (int j = 0; j < SS + 2; j++) right[k][j] += rates[k][i] * right[i][j];
        UNROLL for (int i = 0; i < SS; i++) {
            V sums[SS + 2];
            UNROLL for (int j = 0; j < SS; j++) sums[j] = p[1] * inside[i * SS + j] + spread;
            sums[SS] = unit;
            sums[SS + 1] = unit * (l - 1.0);
            UNROLL for (int k = 0; k < SS; k++) {
                V up = p[0] * climb[i * SS + k];
                UNROLL for (int j = 0; j < SS + 2; j++) sums[j] += up * right[k][j];
            }
            UNROLL for (int j = 0; j < SS; j++) rates[i][j] = sums[j];
            collected[i][0] = sums[SS];
            collected[i][1] = sums[SS + 1];
        }
        T large = lt(all(0x1p400), collected[0][0]);
        if (any(large)) {
            V shrink = pick(large, all(0x1p-400), all(1));
            unit = unit * shrink;
            for (int i = 0; i < SS; i++) {
                collected[i][0] *= shrink;
                collected[i][1] *= shrink;
            }
        }
    }
    V x[SS], mass = all(0), moment = all(0);
    measure(rates, x);
    for (int i = 0; i < SS; i++) {
        mass += x[i] * collected[i][0];
        moment += x[i] * collected[i][1];
    }
    *out = moment / mass;
}

/* vector i of ``out`` holds element i of W rows of ``length`` elements that lie ``stride`` apart */
INLINE void turn(const double *rows, size_t stride, int length, V *out)
{
    int at = 0;
#ifdef __AVX512DQ__
    for (; at + 8 <= length; at += 8) {
        V a[8], b[8];
        for (int u = 0; u < 8; u++) a[u] = load(rows + u * stride + at);
        for (int u = 0; u < 8; u += 2) {
            b[u] = _mm512_unpacklo_pd(a[u], a[u + 1]);
            b[u + 1] = _mm512_unpackhi_pd(a[u], a[u + 1]);
        }
        for (int u = 0; u < 2; u++) {
            V c = _mm512_shuffle_f64x2(b[u], b[u + 2], 0x88), d = _mm512_shuffle_f64x2(b[u], b[u + 2], 0xdd);
            V e = _mm512_shuffle_f64x2(b[u + 4], b[u + 6], 0x88), f = _mm512_shuffle_f64x2(b[u + 4], b[u + 6], 0xdd);
            out[at + u] = _mm512_shuffle_f64x2(c, e, 0x88);
            out[at + u + 4] = _mm512_shuffle_f64x2(c, e, 0xdd);
            out[at + u + 2] = _mm512_shuffle_f64x2(d, f, 0x88);
            out[at + u + 6] = _mm512_shuffle_f64x2(d, f, 0xdd);
        }
    }
#endif
    for (; at < length; at++) {
        double one[W];
        for (int u = 0; u < W; u++) one[u] = rows[u * stride + at];
        out[at] = load(one);
    }
}

typedef struct {
    const double *climb, *inside, *fall, *p;
    double *out;
    int levels;
    size_t count, start, stop;
} Part;

static void *run_levels(void *argument)
{
    const Part *part = argument;
    for (size_t at = part->start; at < part->stop; at += W) {
        V p[4], mean;
        for (int i = 0; i < 4; i++) p[i] = load(part->p + i * part->count + at);
        level_mean(part->climb, part->inside, part->fall, part->levels, p, &mean);
        store(part->out + at, mean);
    }
    return NULL;
}

static void *run_laws(void *argument)
{
    const Part *part = argument;
    for (size_t at = part->start; at < part->stop; at += W) {
        V rates[SS][SS], x[SS], sum = all(0);
        turn(part->p + at * SS * SS, SS * SS, SS * SS, &rates[0][0]);
        measure(rates, x);
        for (int i = 0; i < SS; i++) sum += x[i];
        sum = 1.0 / sum;
        for (int i = 0; i < SS; i++) {
            double one[W];
            store(one, x[i] * sum);
            for (int u = 0; u < W; u++) part->out[(at + u) * SS + i] = one[u];
        }
    }
    return NULL;
}

static int on_threads(void *(*run)(void *), Part part, int threads)
{
    Part first = part, second = part;
    pthread_t other;
    first.start = 0;
    first.stop = second.start = part.count / threads;
    second.stop = part.count;
    if (threads == 2 && pthread_create(&other, NULL, run, &second)) return 1;
    run(&first);
    return threads == 2 ? pthread_join(other, NULL) : 0;
}

/* ``count`` a multiple of ``threads`` W, here and below; 0 if a thread could be started */
int level_means(const double *climb, const double *inside, const double *fall, const double *p, double *out, int levels,
                size_t count, int threads)
{
    return on_threads(run_levels, (Part){climb, inside, fall, p, out, levels, count, 0, 0}, threads);
}

int laws(const double *rates, double *out, size_t count, int threads)
{
    return on_threads(run_laws, (Part){NULL, NULL, NULL, rates, out, 0, count, 0, 0}, threads);
}
