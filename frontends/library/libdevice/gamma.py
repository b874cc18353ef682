"""The gamma function and its logarithm, in f64; f32 is computed in f64 and rounded.

The polynomials interpolate the function at the Chebyshev points of the named interval; they were computed with 80
digits. Coefficients start with the highest power.
"""

from __future__ import annotations

from typing import Any, Final

from ziggurat.frontends import language as zg
from ziggurat.frontends.library.elementary import INFINITY, NAN, horner
from ziggurat.frontends.library.libdevice.exponential import sinpi
from ziggurat.frontends.library.libdevice.table import helper, in_f64

# log Γ(2 + y) / y and log Γ(1 + y) / y as polynomials in y, for |y| < 1/2.
LGAMMA_2: Final = (
    6.379047507619774e-08, -1.3412819758517287e-07, 2.0304806751615227e-07, -4.303558760359961e-07,
    9.578663334114758e-07, -2.0449201467015115e-06, 4.374374916915131e-06, -9.438458716242811e-06,
    2.050726741605779e-05, -4.4926351103833334e-05, 9.945750909889392e-05, -0.00022315475074520367,
    0.0005096695248853096, -0.0011927539120010226, 0.002890510330738737, -0.0073855510286681535, 0.02058080842778457,
    -0.06735230105319814, 0.3224670334241132, 0.42278433509846713,
)  # fmt: skip
LGAMMA_1: Final = (
    0.21762817640022097, -0.22471180158915516, -0.14857260899606312, 0.1528715168258553, 0.14011729595820724,
    -0.14497971020532596, 0.01333577663873192, -0.014509338086091672, 0.057003000096539545, -0.059850048562680856,
    0.054501409023364235, -0.057737256640806416, 0.0626116167474043, -0.06678275881746833, 0.07142491150665906,
    -0.07692423568567124, 0.08335423437020126, -0.09095442301348973, 0.10009944506030896, -0.1113342530365414,
    0.1255096697597847, -0.14404989701106719, 0.16955717699509998, -0.2073855510262953, 0.2705808084277935,
    -0.4006856343865406, 0.8224670334241132, -0.5772156649015329,
)  # fmt: skip
# x · (log Γ(x) - (x - ½) log x + x - ½ log 2π) as a polynomial in 1 / x², for x ≥ 8.
STIRLING: Final = (
    -0.020855820837463117, 0.0062081367662297935, -0.001914965912162907, 0.0008417325268022405,
    -0.0005952380234291254, 0.0007936507935117282, -0.0027777777777776747, 0.08333333333333333,
)  # fmt: skip
HALF_LOG_TWO_PI: Final = 0.9189385332046728
ROOT_TWO_PI: Final = 2.5066282746310007
PI: Final = 3.141592653589793
LOG_PI: Final = 1.1447298858494002


@helper
def stirling(x: Any) -> Any:
    """The last term of Stirling's formula for log Γ."""
    inverse = zg.div_rn(1.0, x)
    return zg.mul(inverse, horner(zg.mul(inverse, inverse), STIRLING))


@helper
def reduced(x: Any) -> Any:
    """A number between 1.5 and 2.5 that differs from x, 2.5 to 8, by an integer, and Γ(x) over Γ of it."""
    rest = x
    factor = zg.add(zg.mul(x, 0.0), 1.0)
    for _ in zg.static_range(6):
        large = zg.greater(rest, 2.5)
        rest = zg.where(large, zg.sub(rest, 1.0), rest)
        factor = zg.where(large, zg.mul(factor, rest), factor)
    return rest, factor


@helper
def log_gamma(x: Any) -> Any:
    """log Γ(x) for a positive number."""
    far = zg.greater_equal(x, 8.0)
    argument = zg.where(far, 2.0, x)
    rest, factor = reduced(argument)
    y = zg.sub(rest, 2.0)
    near = zg.add(zg.log(factor), zg.mul(y, horner(y, LGAMMA_2)))
    tiny = zg.less(argument, 0.5)
    z = zg.where(tiny, argument, zg.sub(argument, 1.0))
    low = zg.mul(z, horner(z, LGAMMA_1))
    low = zg.where(tiny, zg.sub(low, zg.log(argument)), low)
    near = zg.where(zg.less(argument, 1.5), low, near)
    large = zg.where(far, x, 8.0)
    main = zg.fma(zg.sub(large, 0.5), zg.sub(zg.log(large), 1.0), zg.add(HALF_LOG_TWO_PI - 0.5, stirling(large)))
    return zg.where(far, main, near)


@in_f64
def lgamma(x: Any) -> Any:
    """log |Γ(x)|; below zero by Γ(x) Γ(-x) = -π / (x sin πx)."""
    size = zg.abs(x)
    result = log_gamma(zg.where(zg.equal(size, 0.0), 1.0, size))
    sine = zg.abs(sinpi(x))
    mirrored = zg.sub(zg.sub(LOG_PI, zg.log(zg.mul(size, sine))), result)
    result = zg.where(zg.less(x, 0.0), zg.where(zg.less(size, 1e-18), zg.neg(zg.log(size)), mirrored), result)
    pole = zg.and_(zg.less_equal(x, 0.0), zg.equal(zg.floor(x), x))
    result = zg.where(zg.or_(pole, zg.equal(size, INFINITY)), INFINITY, result)
    return zg.where(zg.isnan(x), NAN, zg.add(result, 0.0))


@helper
def gamma_parts(x: Any) -> Any:
    """Two factors of Γ(x) for a positive number up to 200: Γ itself may be too large."""
    far = zg.greater_equal(x, 8.0)
    argument = zg.where(far, 2.0, x)
    reduced_argument, factor = reduced(argument)
    low = zg.less(argument, 1.5)
    y = zg.where(low, zg.sub(argument, 1.0), zg.sub(reduced_argument, 2.0))
    log = zg.where(low, zg.mul(y, horner(y, LGAMMA_1)), zg.mul(y, horner(y, LGAMMA_2)))
    tiny = zg.less(argument, 0.5)
    log = zg.where(tiny, zg.mul(argument, horner(argument, LGAMMA_1)), log)
    near = zg.mul(zg.exp(log), factor)
    near = zg.where(tiny, zg.div_rn(near, argument), near)
    large = zg.where(far, x, 8.0)
    power = zg.pow(large, zg.fma(large, 0.5, -0.25))
    rest = zg.mul(zg.mul(power, zg.exp(zg.neg(large))), zg.mul(zg.exp(stirling(large)), ROOT_TWO_PI))
    return zg.where(far, power, near), zg.where(far, rest, 1.0)


@in_f64
def tgamma(x: Any) -> Any:
    """Γ(x); below zero by Γ(x) Γ(-x) = -π / (x sin πx)."""
    size = zg.abs(x)
    first, second = gamma_parts(zg.clamp(size, 1e-300, 190.0))
    result = zg.mul(first, second)
    mirrored = zg.div_rn(zg.div_rn(-PI, zg.mul(zg.mul(x, sinpi(x)), first)), second)
    result = zg.where(zg.less(x, 0.0), mirrored, result)
    result = zg.where(zg.less(size, 1e-17), zg.div_rn(1.0, x), result)
    result = zg.where(zg.greater(x, 172.0), INFINITY, result)
    wrong = zg.and_(zg.less(x, 0.0), zg.equal(zg.floor(x), x))
    return zg.where(zg.or_(wrong, zg.isnan(x)), NAN, result)
