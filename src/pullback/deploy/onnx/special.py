"""Functions that ONNX lacks in float64, or altogether, as texts in functions that it has.

Sources: W. Cody, "Rational Chebyshev approximations for the error function", Mathematics of
Computation 23 (1969), 631-637; S. Moshier, Methods and Programs for Mathematical Functions (1989),
for atan; M. Wichura, "Algorithm AS 241", Applied Statistics 37 (1988), 477-484; for the others
M. Abramowitz and I. Stegun, Handbook of Mathematical Functions (1964), chapter 6.
"""

from __future__ import annotations

import math
from collections.abc import Iterable


def horner(variable: str, *coefficients: float) -> str:
    """Return a polynomial, its coefficients from the highest power down."""
    text = repr(coefficients[0])
    for coefficient in coefficients[1:]:
        text = f"({text} * {variable} + {coefficient!r})"
    return text


def join_statements(lines: Iterable[str]) -> str:
    """Return statements as one text."""
    return "; ".join(lines)


# --- atan: |x| is brought below 0.66, from above tan(3π/8) by 1/x, between by (x - 1)/(x + 1).

ATAN = join_statements(
    [
        "a = abs(x)",
        "far = a > 2.414213562373095",
        "near = a <= 0.66",
        "r = where(far, -1 / a, where(near, a, (a - 1) / (a + 1)))",
        "z = r * r",
        "p = "
        + horner(
            "z",
            *(-8.750608600031904122785e-1, -1.615753718733365076637e1, -7.500855792314704667340e1),
            *(-1.228866684490136173410e2, -6.485021904942025371773e1),
        ),
        "q = "
        + horner(
            "z",
            *(1.0, 2.485846490142306297962e1, 1.650270098316988542046e2),
            *(4.328810604912902668951e2, 4.853903996359136964868e2, 1.945506571482613964425e2),
        ),
        # What π/2 and π/4 have beyond a double is added too.
        "rest = where(far, 6.123233995736766e-17, where(near, 0.0, 3.061616997868383e-17))",
        "start = where(far, 1.5707963267948966, where(near, 0.0, 0.7853981633974483))",
        "copysign(start + ((r * z * (p / q) + rest) + r), x)",
    ]
)

# --- erf and erfc

ERF_NEAR = "x * ({} / {})".format(
    horner(
        "(x * x)",
        *(1.85777706184603153e-1, 3.16112374387056560, 1.13864154151050156e2),
        *(3.77485237685302021e2, 3.20937758913846947e3),
    ),
    horner(
        "(x * x)",
        *(1.0, 2.36012909523441209e1, 2.44024637934444173e2),
        *(1.28261652607737228e3, 2.84423683343917062e3),
    ),
)
ERFC = join_statements(
    [
        "a = minimum(abs(x), 28)",
        # exp(-a²) = exp(-c²) exp(-(a - c)(a + c)), of which c² is exact.
        "c = floor(a * 16) / 16",
        "falling = exp(-(c * c)) * exp((c - a) * (a + c))",
        "p = "
        + horner(
            "a",
            *(2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594),
            *(6.61191906371416295e1, 2.98635138197400131e2, 8.81952221241769090e2),
            *(1.71204761263407058e3, 2.05107837782607147e3, 1.23033935479799725e3),
        ),
        "q = "
        + horner(
            "a",
            *(1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2),
            *(1.62138957456669019e3, 3.29079923573345963e3, 4.36261909014324716e3),
            *(3.43936767414372164e3, 1.23033935480374942e3),
        ),
        "z = 1 / where(a == 0, 1.0, a * a)",
        "far_p = "
        + horner(
            "z",
            *(1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1),
            *(1.25781726111229246e-1, 1.60837851487422766e-2, 6.58749161529837803e-4),
        ),
        "far_q = "
        + horner(
            "z",
            *(1.0, 2.56852019228982242, 1.87295284992346047, 5.27905102951428412e-1),
            *(6.05183413124413191e-2, 2.33520497626869185e-3),
        ),
        "far = (0.5641895835477563 - z * (far_p / far_q)) / where(a == 0, 1.0, a)",
        "tail = falling * where(a <= 4, p / q, far)",
        f"where(abs(x) <= 0.46875, 1 - {ERF_NEAR}, where(x < 0, 2 - tail, tail))",
    ]
)

# --- erfinv: by the normal distribution's quantile, PPND16((1 + x)/2)/√2.

ERFINV = join_statements(
    [
        "r = 0.180625 - x * x * 0.25",
        "near = x * 0.35355339059327373 * ({} / {})".format(
            horner(
                "r",
                *(2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4),
                *(4.5921953931549871457e4, 1.3731693765509461125e4, 1.9715909503065514427e3),
                *(1.3314166789178437745e2, 3.3871328727963666080),
            ),
            horner(
                "r",
                *(5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4),
                *(2.1213794301586595867e4, 5.3941960214247511077e3, 6.8718700749205790830e2),
                *(4.2313330701600911252e1, 1.0),
            ),
        ),
        "root = sqrt(-log((1 - abs(x)) * 0.5))",
        "s = root - 1.6",
        "far = 0.7071067811865476 * ({} / {})".format(
            horner(
                "s",
                *(7.74545014278341407640e-4, 2.27238449892691845833e-2),
                *(2.41780725177450611770e-1, 1.27045825245236838258, 3.64784832476320460504),
                *(5.76949722146069140550, 4.63033784615654529590, 1.42343711074968357734),
            ),
            horner(
                "s",
                *(1.05075007164441684324e-9, 5.47593808499534494600e-4),
                *(1.51986665636164571966e-2, 1.48103976427480074590e-1),
                *(6.89767334985100004550e-1, 1.67638483018380384940, 2.05319162663775882187),
                1.0,
            ),
        ),
        "t = where(root == inf, 0.0, root - 5)",
        "end = 0.7071067811865476 * ({} / {})".format(
            horner(
                "t",
                *(2.01033439929228813265e-7, 2.71155556874348757815e-5),
                *(1.24266094738807843860e-3, 2.65321895265761230930e-2),
                *(2.96560571828504891230e-1, 1.78482653991729133580),
                *(5.46378491116411436990, 6.65790464350110377720),
            ),
            horner(
                "t",
                *(2.04426310338993978564e-15, 1.42151175831644588870e-7),
                *(1.84631831751005468180e-5, 7.86869131145613259100e-4),
                *(1.48753612908506148525e-2, 1.36929880922735805310e-1),
                *(5.99832206555887937690e-1, 1.0),
            ),
        ),
        "tail = where(abs(x) == 1, inf, where(root <= 5, far, end))",
        "where(abs(x) <= 0.85, near, copysign(tail, x))",
    ]
)

# --- The gamma functions: up by Γ(z + 1) = z Γ(z) until the asymptotic series is exact.

ENOUGH = 10
LGAMMA = join_statements(
    [
        "turned = x < 0.5",
        "z0 = where(turned, 1 - x, x)",
        "p0 = 1.0",
        *(
            line
            for k in range(ENOUGH)
            for line in (
                f"p{k + 1} = where(z{k} < {ENOUGH}, p{k} * z{k}, p{k})",
                f"z{k + 1} = where(z{k} < {ENOUGH}, z{k} + 1, z{k})",
            )
        ),
        f"z = z{ENOUGH}",
        "w = 1 / (z * z)",
        "series = {} / z".format(
            horner(
                "w",
                *(-3617 / 122400, 1 / 156, -691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260),
                *(-1 / 360, 1 / 12),
            )
        ),
        f"up = (z - 0.5) * (log(z) - 1) + ({0.5 * math.log(2 * math.pi) - 0.5!r} + series)"
        f" - log(p{ENOUGH})",
        "d = x - round(x)",
        "sine = abs(sin(pi * d))",
        f"reflected = {math.log(math.pi)!r} - log(sine) - up",
        "where(abs(x) == inf, inf, where(turned, reflected, up))",
    ]
)
DIGAMMA = join_statements(
    [
        "turned = x < 0",
        "z0 = where(turned, 1 - x, x)",
        "s0 = 0.0",
        "p0 = 1.0",
        *(
            line
            for k in range(ENOUGH)
            for line in (
                f"s{k + 1} = where(z{k} < {ENOUGH}, s{k} * z{k} + p{k}, s{k})",
                f"p{k + 1} = where(z{k} < {ENOUGH}, p{k} * z{k}, p{k})",
                f"z{k + 1} = where(z{k} < {ENOUGH}, z{k} + 1, z{k})",
            )
        ),
        f"z = z{ENOUGH}",
        "w = 1 / (z * z)",
        "tail = w * {} + 0.5 / z + s{} / p{}".format(
            horner(
                "w",
                *(1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12),
            ),
            ENOUGH,
            ENOUGH,
        ),
        "value = log(z) - tail",
        "d = x - round(x)",
        "other = where(d == 0, nan, value - pi * cos(pi * d) / sin(pi * d))",
        "where(x == 0, copysign(inf, -x), where(turned, other, value))",
    ]
)

# B₂ⱼ/(2j)!
BERNOULLI = (
    *(8.3333333333333333e-2, -1.3888888888888889e-3, 3.3068783068783069e-5),
    *(-8.2671957671957672e-7, 2.0876756987868099e-8, -5.2841901386874932e-10),
    *(1.3382536530684679e-11, -3.3896802963225829e-13, 8.5860620562778446e-15),
    *(-2.1748686985580619e-16, 5.5090028283602295e-18, -1.3954464685812523e-19),
)


def zeta(name: str, order: int, start: str) -> list[str]:
    """Return statements for Hurwitz's ζ(s, q): its first terms, the rest by Euler and Maclaurin.

    Args:
        name: of the value; intermediate names begin with it.
        order: s.
        start: the expression for q.
    """
    enough = 8 + order
    lines = [f"{name}w0 = {start}", f"{name}t0 = 0.0"]
    for k in range(enough):
        small = f"{name}w{k} < {enough}"
        lines += [
            f"{name}t{k + 1} = where({small}, {name}t{k} + {name}w{k}**-{order}, {name}t{k})",
            f"{name}w{k + 1} = where({small}, {name}w{k} + 1, {name}w{k})",
        ]
    last, rising, total = f"{name}w{enough}", float(order), []
    for j, coefficient in enumerate(BERNOULLI):
        total.append(coefficient * rising)
        rising *= (order + 2 * j + 1) * (order + 2 * j + 2)
    return [
        *lines,
        f"{name}v = 1 / ({last} * {last})",
        f"{name}e = {horner(f'{name}v', *reversed(total))} / {last}",
        f"{name} = where({start} == inf, 0.0, {name}t{enough}"
        f" + {last}**-{order} * ({last} / {order - 1} + 0.5 + {name}e))",
    ]


def polygamma(order: int) -> str:
    """Return the text of the derivative of digamma of an order, in `x`.

    For x <= 0 with d to the nearest integer, the terms are d, those above it, and those from
    d - 1 down to x: a finite sum, the difference of two infinite ones.
    """
    if order == 0:
        return "digamma(x)"
    s = order + 1
    sign = "-" if s % 2 else "+"
    factor = float(math.factorial(order)) * (1 if order % 2 else -1)
    return join_statements(
        [
            "turned = x <= 0",
            *zeta("right", s, "where(turned, 1.0, x)"),
            "under = where(turned, -x, 0.0)",
            "d = round(under) - under",
            *zeta("near", s, "(1 - d)"),
            *zeta("end", s, "(1 + under)"),
            *zeta("above", s, "(1 + d)"),
            f"left = where(d == 0, inf, d**-{s} + above {sign} (near - end))",
            f"{factor!r} * where(turned, left, right)",
        ]
    )
