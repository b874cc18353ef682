"""Bessel functions, in f64; f32 is computed in f64 and rounded.

Up to 8 they are polynomials in x², beyond it amplitudes of a cosine and a sine (Hankel's form). The polynomials
interpolate at the Chebyshev points of the named interval; they were computed with 80 digits. Coefficients start with
the highest power.
"""

from __future__ import annotations

import math
from typing import Any, Final

from ziggurat.codemodel.types import f64
from ziggurat.frontends import language as zg
from ziggurat.frontends.library.elementary import INFINITY, NAN, horner, with_sign
from ziggurat.frontends.library.libdevice.table import helper, in_f64, libdevice

# J₀, J₁ / x, Y₀ - (2/π) log x J₀ and (Y₁ - (2/π) (log x J₁ - 1/x)) / x as polynomials in x² / 32 - 1, for 0 ≤ x < 8.
J0: Final = (
    -1.1380595432215676e-14, 4.003763198544757e-13, -1.238464418210802e-11, 3.363447579149498e-10,
    -7.91540772613074e-09, 1.595610910454382e-07, -2.7177491450348606e-06, 3.8473197855944406e-05,
    -0.00044354592247271616, 0.004058078989140991, -0.028472718610869575, 0.14598884856759264, -0.507468045847102,
    1.0383794611437211, -0.808088807669687, -0.6484692830871837, 0.9303012472958572, 0.04582966485981377,
)  # fmt: skip
J1: Final = (
    -3.237828825886891e-16, 1.2095547763548495e-14, -3.9908120700697754e-13, 1.1610590176624424e-11,
    -2.9430378793535847e-10, 6.431268798326299e-09, -1.1967081644265458e-07, 1.8684525371950885e-06,
    -2.4045748660869506e-05, 0.0002494945813909099, -0.002029039494570245, 0.012456814392255438,
    -0.054745818212847276, 0.15858376432721938, -0.2595948652859303, 0.15151665143806634, 0.08105866038589796,
    -0.05814382795599107,
)  # fmt: skip
Y0: Final = (
    2.5576616218907466e-14, -8.840111900737966e-13, 2.6818237435502344e-11, -7.130461466149226e-10,
    1.6391065240160875e-08, -3.218507844592323e-07, 5.321318633761208e-06, -7.279541882454126e-05,
    0.0008061586060550506, -0.0070257410572709695, 0.046367047681347105, -0.21895747096171628, 0.6721770783431723,
    -1.0775477338215995, 0.14412632369302442, 1.6470964788745466, -0.8284358903604587, -0.382250654459425,
)  # fmt: skip
Y1: Final = (
    7.338090945282559e-16, -2.6951389107285232e-14, 8.728814257439169e-13, -2.488750990528334e-11,
    6.16974260611845e-10, -1.3153322551124148e-08, 2.3804929913727272e-07, -3.6009998743578177e-06,
    4.4674330129143775e-05, -0.00044381734351149876, 0.0034224907399180455, -0.019628756833099423,
    0.07854786922242545, -0.19639839859930425, 0.23507209206669755, 0.023367571720993584, -0.24337743079193114,
    0.07075985882118005,
)  # fmt: skip
# The amplitudes P and x Q / 8 of the cosine and the sine as polynomials in 128 / x² - 1, for x ≥ 8.
P0: Final = (
    -2.0565403467389723e-17, 4.1668013136172577e-17, 2.6314645870161975e-17, -4.2778126405334083e-17,
    -2.0531123864739875e-16, 4.741301447205664e-16, -7.936942576468592e-16, 2.2497871827776226e-15,
    -6.9961523802825134e-15, 2.172111277538873e-14, -7.238009785735282e-14, 2.6327410828185037e-13,
    -1.0569961572727707e-12, 4.774054889489212e-12, -2.4885548432049084e-11, 1.550103391109105e-10,
    -1.2121175934003999e-09, 1.280376064216536e-08, -2.052744816209829e-07, 6.137416080160241e-06,
    -0.0005363673192130031, 0.9994572757882519,
)  # fmt: skip
Q0: Final = (
    2.9822546337256645e-17, -5.890957441379391e-17, -4.460202857175721e-17, 7.491126105082151e-17,
    2.689148974615854e-16, -5.947558187545947e-16, 8.589489894636646e-16, -2.359750910089743e-15,
    7.202616357044218e-15, -2.1293473592353627e-14, 6.712029081771773e-14, -2.2981430113980315e-13,
    8.611487836040412e-13, -3.5905486620522763e-12, 1.7032710149696645e-11, -9.470356789767689e-11,
    6.432782291205258e-10, -5.66871611872771e-09, 7.106214859009343e-08, -1.4771388326466318e-06,
    6.833149099343897e-05, -0.015555113879513518,
)  # fmt: skip
P1: Final = (
    2.145544355045319e-17, -4.351863675225863e-17, -2.7246619117228443e-17, 4.418776266219737e-17,
    2.1525540692822226e-16, -4.981240205732739e-16, 8.393214769923027e-16, -2.3836414964866355e-15,
    7.423728735471029e-15, -2.3116711848946745e-14, 7.730104900886797e-14, -2.823280598772959e-13,
    1.1391731127009092e-12, -5.1774894611633146e-12, 2.7207066789459256e-11, -1.7131569534687965e-10,
    1.3603051585152023e-09, -1.470851214793477e-08, 2.4536766228773246e-07, -7.95969469849188e-06,
    0.0008988049416705562, 1.0009070262780821,
)  # fmt: skip
Q1: Final = (
    -3.1081740060396305e-17, 6.145955042733449e-17, 4.621893506364723e-17, -7.754261974076295e-17,
    -2.8145695577068713e-16, 6.236915478027173e-16, -9.072393509554666e-16, 2.496514138113355e-15,
    -7.627614125234105e-15, 2.261118834137002e-14, -7.150421146289023e-14, 2.4573063783149775e-13,
    -9.249059031834393e-13, 3.877710527023139e-12, -1.852424770483043e-11, 1.0395037545972482e-10,
    -7.151106024905128e-10, 6.42013257194729e-09, -8.291960708483611e-08, 1.8212018512277628e-06,
    -9.621458822054437e-05, 0.04677687402744898,
)  # fmt: skip
# The first terms of the series of I₀ and I₁ / x in x², for x < 16; and √x e^-x times I₀ and I₁ as polynomials in
# 32 / x - 1, for x ≥ 16.
I0: Final = tuple(0.25**k / math.factorial(k) ** 2 for k in reversed(range(31)))
I1: Final = tuple(0.5 * 0.25**k / (math.factorial(k) * math.factorial(k + 1)) for k in reversed(range(31)))
I0_LARGE: Final = (
    -1.606225907076862e-15, -2.2021942080650418e-15, 5.7982165209922265e-15, 1.2866403164183685e-14,
    9.058334506621611e-15, 2.080210147873685e-14, 8.986703346789559e-14, 3.442011633376368e-13,
    1.5495144374431431e-12, 8.454726700447085e-12, 5.574317147992e-11, 4.5056978178363015e-10,
    4.5698010260942735e-09, 6.026316993113697e-08, 1.0944942081141413e-06, 3.035501346758326e-05,
    0.0016160154003827553, 0.40052897918718267,
)  # fmt: skip
I1_LARGE: Final = (
    1.6648611688400593e-15, 2.2586345495274677e-15, -6.0837521539328005e-15, -1.3409784814608453e-14,
    -9.511340552595539e-15, -2.2264656792022006e-14, -9.640588285890514e-14, -3.727025628649831e-13,
    -1.6984910012334195e-12, -9.403339713667481e-12, -6.315144347598835e-11, -5.23062822158924e-10,
    -5.4886549942575794e-09, -7.616856996206747e-08, -1.506843251308417e-06, -4.9766991026249695e-05,
    -0.004770398290913601, 0.394220213406121,
)  # fmt: skip
TWO_OVER_PI: Final = 0.6366197723675814
ROOT_HALF: Final = 0.7071067811865476
ROOT_TWO_OVER_PI: Final = 0.7978845608028654
# The first term that is negligible in the sums of the recurrences.
TINY: Final = 1e-17


@helper
def near_place(x: Any) -> Any:
    """The argument of the polynomials below 8."""
    near = zg.where(zg.less(x, 8.0), x, 0.0)
    return zg.fma(zg.mul(near, near), 0.03125, -1.0)


@helper
def waves(x: Any, order: zg.constexpr) -> Any:
    """J and Y of order 0 or 1 for x ≥ 8: the phase is π/4 beyond the quarter turns."""
    far = zg.clamp(x, 8.0, 1e300)
    inverse = zg.div_rn(8.0, far)
    place = zg.fma(zg.mul(inverse, inverse), 2.0, -1.0)
    p = horner(place, P0 if order == 0 else P1)
    q = zg.mul(inverse, horner(place, Q0 if order == 0 else Q1))
    sine, cosine = zg.sin(far), zg.cos(far)
    even, odd = zg.mul(zg.add(sine, cosine), ROOT_HALF), zg.mul(zg.sub(sine, cosine), ROOT_HALF)
    c = even if order == 0 else odd
    s = odd if order == 0 else zg.neg(even)
    size = zg.div_rn(ROOT_TWO_OVER_PI, zg.sqrt_rn(far))
    return zg.mul(size, zg.sub(zg.mul(p, c), zg.mul(q, s))), zg.mul(size, zg.fma(p, s, zg.mul(q, c)))


@in_f64
def j0(x: Any) -> Any:
    """The first kind, order 0."""
    size = zg.abs(x)
    far, _ = waves(size, 0)
    result = zg.where(zg.less(size, 8.0), horner(near_place(size), J0), far)
    result = zg.where(zg.less(size, 1e-9), 1.0, result)
    return zg.where(zg.equal(size, INFINITY), 0.0, zg.where(zg.isnan(x), NAN, result))


@in_f64
def j1(x: Any) -> Any:
    """The first kind, order 1."""
    size = zg.abs(x)
    far, _ = waves(size, 1)
    result = zg.where(zg.less(size, 8.0), zg.mul(size, horner(near_place(size), J1)), far)
    result = zg.where(zg.equal(size, INFINITY), 0.0, zg.where(zg.isnan(x), NAN, result))
    return zg.where(zg.less(x, 0.0), zg.neg(result), zg.where(zg.equal(x, 0.0), x, result))


@helper
def of_second_kind(value: Any, x: Any) -> Any:
    """The function for positive numbers; -∞ at 0, NaN below."""
    value = zg.where(zg.equal(x, 0.0), -INFINITY, zg.where(zg.equal(x, INFINITY), 0.0, value))
    return zg.where(zg.greater_equal(x, 0.0), value, NAN)


@in_f64
def y0(x: Any) -> Any:
    """The second kind, order 0."""
    near = zg.and_(zg.greater(x, 0.0), zg.less(x, 8.0))
    argument = zg.where(near, x, 1.0)
    place = near_place(argument)
    small = zg.fma(zg.mul(zg.log(argument), TWO_OVER_PI), horner(place, J0), horner(place, Y0))
    _, far = waves(x, 0)
    return of_second_kind(zg.where(near, small, far), x)


@in_f64
def y1(x: Any) -> Any:
    """The second kind, order 1."""
    near = zg.and_(zg.greater(x, 0.0), zg.less(x, 8.0))
    argument = zg.where(near, x, 1.0)
    place = near_place(argument)
    first = zg.mul(argument, horner(place, J1))
    bracket = zg.fma(zg.log(argument), first, zg.neg(zg.div_rn(1.0, argument)))
    small = zg.fma(bracket, TWO_OVER_PI, zg.mul(argument, horner(place, Y1)))
    _, far = waves(x, 1)
    return of_second_kind(zg.where(near, small, far), x)


# Orders from 2 on, by the recurrence over the orders. It is one of scalars, as the number of its steps is.


@helper
def upward(n: Any, x: Any, first: Any, second: Any) -> Any:
    """The function of order n ≥ 2 from those of orders 0 and 1."""
    before, now = first, second
    for order in range(1, n):
        before, now = now, 2.0 * order / x * now - before
    return now


@helper
def downward(n: Any, x: Any) -> Any:
    """J of order n > x, from a higher order down: the ratios to the sum J₀ + 2 (J₂ + J₄ + …), which is 1 (Miller)."""
    start = 2 * ((n + zg.cast(zg.sqrt_rn(zg.cast(160 * n, f64)), n.dtype)) // 2)
    after, now, total, result = x * 0.0, x * 0.0 + 1.0, x * 0.0, x * 0.0
    for step in range(0, start):
        order = start - step
        after, now = now, 2.0 * order / x * now - after
        if zg.abs(now) > 1e200:
            now, after, total, result = now * 1e-200, after * 1e-200, total * 1e-200, result * 1e-200
        if (order - 1) % 2 == 0:
            total = total + (now if order == 1 else 2.0 * now)
        if order - 1 == n:
            result = now
    return result / total


@helper
def j_scalar(n: Any, x: Any) -> Any:
    """J of an order that is not negative, of a scalar."""
    size = zg.abs(x)
    result = size * 0.0
    if n == 0:
        result = j0(size)
    elif n == 1:
        result = j1(size)
    elif size == 0.0 or size == INFINITY:
        result = size if size == 0.0 else 1.0 / size
    elif size > zg.cast(n, f64):
        result = upward(n, size, j0(size), j1(size))
    else:
        result = downward(n, size)
    if x < 0.0 and n % 2 == 1:
        result = -result
    return result if n >= 0 else size * NAN


@helper
def y_scalar(n: Any, x: Any) -> Any:
    """Y of an order that is not negative, of a scalar."""
    result = x * 0.0
    if n == 0:
        result = y0(x)
    elif n == 1:
        result = y1(x)
    elif x > 0.0 and x < INFINITY:
        result = upward(n, x, y0(x), y1(x))
    else:
        result = y1(x)
    return result if n >= 0 else result * NAN


@helper
def of_each(n: Any, x: Any, scalar: zg.constexpr) -> Any:
    """A function of an order and a number, of scalars or of tensors."""
    wide = zg.cast(x, f64)
    shape = zg.add(wide, zg.cast(n, f64)).shape
    return zg.cast(scalar(n, wide) if shape == () else zg.map_elementwise(scalar, n, wide), x.dtype)


@libdevice
def jn(n: Any, x: Any) -> Any:
    """The first kind, order n; NaN for a negative order."""
    return of_each(n, x, j_scalar)


@libdevice
def yn(n: Any, x: Any) -> Any:
    """The second kind, order n; NaN for a negative order."""
    return of_each(n, x, y_scalar)


# Modified functions.


@helper
def grown(x: Any, series: zg.constexpr) -> Any:
    """e^x / √x times a series, for x ≥ 16, without overflow before the product overflows."""
    far = zg.clamp(x, 16.0, 2000.0)
    half = zg.exp(zg.mul(far, 0.5))
    place = zg.sub(zg.div_rn(32.0, far), 1.0)
    return zg.mul(zg.mul(zg.div_rn(horner(place, series), zg.sqrt_rn(far)), half), half)


@in_f64
def cyl_bessel_i0(x: Any) -> Any:
    """The modified function of the first kind, order 0."""
    size = zg.abs(x)
    near = zg.where(zg.less(size, 16.0), size, 0.0)
    result = zg.where(zg.less(size, 16.0), horner(zg.mul(near, near), I0), grown(size, I0_LARGE))
    return zg.where(zg.isnan(x), NAN, result)


@in_f64
def cyl_bessel_i1(x: Any) -> Any:
    """The modified function of the first kind, order 1."""
    size = zg.abs(x)
    near = zg.where(zg.less(size, 16.0), size, 0.0)
    small = zg.mul(near, horner(zg.mul(near, near), I1))
    result = zg.where(zg.less(size, 16.0), small, grown(size, I1_LARGE))
    return zg.where(zg.isnan(x), NAN, with_sign(result, x))
