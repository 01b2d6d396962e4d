/* Vectors of doubles: 8 with AVX-512, else what the compiler makes of 4. V: numbers, T: truth values.
 *
 * lt(a, b), pick(t, yes, no), least(a, b), root(x); log_near(x, x - 1) = ln x for positive normal x;
 * decay(s, ..) = e^-s and 1 - e^-s for s >= 0, with whether s < ln(2)/2 and (e^-s - 1 + s)/s^2 there.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

#ifdef __AVX512DQ__
#include <immintrin.h>
#define W 8
typedef __m512d V;
typedef __m512i I;
typedef __mmask8 T;
INLINE V all(double x) { return _mm512_set1_pd(x); }
INLINE V load(const double *p) { return _mm512_loadu_pd(p); }
INLINE void store(double *p, V x) { _mm512_storeu_pd(p, x); }
INLINE T lt(V a, V b) { return _mm512_cmp_pd_mask(a, b, _CMP_LT_OQ); }
INLINE V pick(T t, V yes, V no) { return _mm512_mask_blend_pd(t, no, yes); }
INLINE V least(V a, V b) { return _mm512_min_pd(a, b); }
INLINE V most(V a, V b) { return _mm512_max_pd(a, b); }
INLINE V root(V x) { return _mm512_sqrt_pd(x); }
INLINE V size(V x) { return _mm512_abs_pd(x); }
INLINE V fused(V a, V b, V c) { return _mm512_fmadd_pd(a, b, c); }
INLINE int any(T t) { return t != 0; }
INLINE T both(T a, T b) { return a & b; }
INLINE V nearest(V x) { return _mm512_roundscale_pd(x, 0); }
INLINE V times_power(V x, V n) { return _mm512_scalef_pd(x, n); }
INLINE V exponent(V x) { return _mm512_getexp_pd(x); }
/* x = 2^e y, y in [sqrt(1/2), sqrt 2) */
INLINE V split(V x, V *y)
{
    I bits = _mm512_castpd_si512(x);
    I e = _mm512_srai_epi64(_mm512_sub_epi64(bits, _mm512_set1_epi64(0x3FE6A09E667F3BCDLL)), 52);
    *y = _mm512_castsi512_pd(_mm512_sub_epi64(bits, _mm512_slli_epi64(e, 52)));
    return _mm512_cvtepi64_pd(e);
}
#else
#define W 4
typedef double V __attribute__((vector_size(8 * W)));
typedef int64_t I __attribute__((vector_size(8 * W)));
typedef I T;
INLINE V all(double x) { return (V){0} + x; }
INLINE V load(const double *p) { V x; memcpy(&x, p, sizeof x); return x; }
INLINE void store(double *p, V x) { memcpy(p, &x, sizeof x); }
INLINE T lt(V a, V b) { return a < b; }
INLINE V pick(T t, V yes, V no) { return (V)((t & (I)yes) | (~t & (I)no)); }
INLINE V least(V a, V b) { return pick(lt(a, b), a, b); }
INLINE V most(V a, V b) { return pick(lt(a, b), b, a); }
INLINE V root(V x) { for (int i = 0; i < W; i++) x[i] = sqrt(x[i]); return x; }
INLINE V size(V x) { return (V)((I)x & INT64_MAX); }
INLINE V fused(V a, V b, V c) { for (int i = 0; i < W; i++) c[i] = fma(a[i], b[i], c[i]); return c; }
INLINE int any(T t) { int64_t found = 0; for (int i = 0; i < W; i++) found |= t[i]; return found != 0; }
INLINE T both(T a, T b) { return a & b; }
INLINE V nearest(V x) { V magic = all(0x1.8p52); return (x + magic) - magic; }
INLINE V whole(I n) { return (V)(n + (I)all(0x1.8p52)) - all(0x1.8p52); }
INLINE V times_power(V x, V n)
{
    n = most(n, all(-1022.0));
    return x * (V)(((I)(n + all(0x1.8p52)) << 52) + (I)all(1));
}
INLINE V exponent(V x) { return whole((((I)x >> 52) & 2047) - 1023); }
INLINE V split(V x, V *y)
{
    I bits = (I)x, e = (bits - 0x3FE6A09E667F3BCDLL) >> 52;
    *y = (V)(bits - (e << 52));
    return whole(e);
}
#endif

INLINE V log_near(V x, V excess)
{
    V y, e = split(x, &y);
    T near = both(lt(all(-0.5), e), lt(e, all(0.5)));
    V s = pick(near, excess, y - 1.0) / pick(near, excess + 2.0, y + 1.0);
    V z = s * s;
    V z2 = z * z, z4 = z2 * z2;  /* pairs of terms, so that fewer operations wait for each other */
    V p = ((z * 0.07308224842544453 + 0.07665860800275845) * z2 + (z * 0.0909144456263094 + 0.11111105567397539)) * z4
        + ((z * 0.14285714312987743 + 0.19999999999949752) * z2 + (z * 0.3333333333333335 + 1.0));
    return e * 0.6931471805599453 + (s + s) * p;
}

typedef struct { V kept, lost, series; T near; } Decay;

INLINE Decay decay(V s)
{
    T here = lt(s, all(700.0));
    s = least(s, all(700.0));
    V n = nearest(s * 1.4426950408889634);
    V x = (n * 0.6931471803691238 - s) + n * 1.9082149292705877e-10;
    V x2 = x * x, x4 = x2 * x2;
    V low = (x * 0.008333333333330062 + 0.04166666666662413) * x2 + (x * 0.16666666666666669 + 0.5);
    V middle = (x * 2.7557268459997064e-06 + 2.4801521295954376e-05) * x2
        + (x * 0.00019841269863053618 + 0.0013888888917213717);
    V p = ((x * 2.510038549551032e-08 + 2.7620088445409746e-07) * x4 + middle) * x4 + low;
    V rest = x + (x * x) * p, power = times_power(all(1), -n);
    return (Decay){pick(here, power + power * rest, all(0)), (1.0 - power) - power * rest, p, lt(n, all(0.5))};
}
