"""Quantiles of symmetric stable laws, and the law that has given ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy.interpolate import make_interp_spline
from scipy.special import gamma

from learncast.validation import FloatArray

# Index, the 0.75 and 0.95 quantiles at scale 1 and the densities there, by inverting exp(-|t|^index) numerically.
# Beyond 2 the inverse is no density, but its quantiles continue smoothly: an estimate need not be clipped at 2.
_QUANTILES = (
    (0.70, 1.09006422004, 16.2351624618, 0.106388205265, 0.00205521451204),
    (0.75, 1.06520050781, 13.1632390697, 0.116146935554, 0.00272382693408),
    (0.80, 1.04553473533, 10.9562456606, 0.125600196684, 0.00350345944596),
    (0.85, 1.02994624516, 9.31794028866, 0.134687576868, 0.00439673082908),
    (0.90, 1.01758340756, 8.06790236476, 0.1433474695, 0.00540639996341),
    (0.95, 1.00777952635, 7.09160937002, 0.151520463208, 0.0065358553692),
    (1.00, 1.0, 6.31375151468, 0.159154943092, 0.00778959736376),
    (1.05, 0.993809579855, 5.68327470766, 0.166213555395, 0.00917374022126),
    (1.10, 0.988852331566, 5.16464608437, 0.172678370229, 0.01069656377),
    (1.15, 0.984838895545, 4.73256771884, 0.178552784094, 0.0123691404896),
    (1.20, 0.981537200396, 4.36867543084, 0.183859582192, 0.0142060474427),
    (1.25, 0.978764368319, 4.05941924525, 0.188636192377, 0.0162261222846),
    (1.30, 0.976378940326, 3.79466740803, 0.192928926452, 0.0184530966515),
    (1.35, 0.974273414787, 3.56676242326, 0.196787732674, 0.0209156684793),
    (1.40, 0.97236740321, 3.36986050644, 0.200262237873, 0.0236461128273),
    (1.45, 0.970601671526, 3.19944461273, 0.203399202174, 0.0266760918595),
    (1.50, 0.968933181714, 3.05194097324, 0.206241152721, 0.0300287425522),
    (1.55, 0.967331109167, 2.92440683771, 0.208825857493, 0.0337084195752),
    (1.60, 0.965773727223, 2.81429280615, 0.211186330114, 0.0376926960925),
    (1.65, 0.964246016719, 2.71929672958, 0.213351132614, 0.041931666104),
    (1.70, 0.962737857524, 2.63730698101, 0.215344819482, 0.0463554900324),
    (1.75, 0.961242674466, 2.56640414963, 0.217188426387, 0.0508862683069),
    (1.80, 0.959756431402, 2.50488148079, 0.218899948784, 0.0554491000796),
    (1.85, 0.958276888607, 2.45125748651, 0.220494782552, 0.0599793403761),
    (1.90, 0.956803057547, 2.40427221861, 0.221986115081, 0.0644257310211),
    (1.95, 0.955334802695, 2.36286993313, 0.223385264475, 0.0687505185904),
    (2.00, 0.953872552409, 2.32617430735, 0.224701969447, 0.0729279106914),
    (2.05, 0.952417090418, 2.29346156388, 0.225944634719, 0.0769418952914),
    (2.10, 0.950969406738, 2.26413487417, 0.227120537516, 0.080784030028),
    (2.15, 0.949530592259, 2.23770168351, 0.228236000729, 0.0844514900861),
    (2.20, 0.948101765365, 2.21375446977, 0.229296537861, 0.0879454700435),
    (2.25, 0.946684021934, 2.19195483548, 0.230306974311, 0.091269935877),
    (2.30, 0.945278402349, 2.17202055715, 0.231271548895, 0.0944306813906),
    (2.35, 0.943885870812, 2.15371513318, 0.23219399893, 0.0974346318417),
    (2.40, 0.942507303466, 2.13683938311, 0.233077631664, 0.100289340236),
    (2.45, 0.94114348279, 2.12122470327, 0.233925384358, 0.103002629837),
    (2.50, 0.939795096357, 2.10672764751, 0.234739874948, 0.105582345588),
)


def stable_quantiles(index: Any) -> tuple[FloatArray, FloatArray]:
    """The 0.75 and 0.95 quantiles at scale 1, for an index from 0.7 to 2.5; nan outside."""
    rows = _table().quantiles(np.asarray(index, dtype=np.float64))
    return rows[..., 0], rows[..., 1]


@dataclass(frozen=True)
class _Table:
    """Splines through the table; nan outside it."""

    quantiles: Callable[[FloatArray], FloatArray]  # index -> quantiles and densities
    index: Callable[[FloatArray], FloatArray]  # log of (q95 - q05) / (q75 - q25) -> index
    ratios: tuple[float, float]


@cache
def _table() -> _Table:
    table = np.array(_QUANTILES)
    ratio = np.log(table[:, 2] / table[:, 1])
    forward = make_interp_spline(table[:, 0], table[:, 1:], k=5)
    inverse = make_interp_spline(ratio[::-1], table[::-1, 0], k=5)  # the ratio falls as the index grows
    return _Table(
        lambda index: forward(index, extrapolate=False),
        lambda value: inverse(value, extrapolate=False),
        (float(ratio[-1]), float(ratio[0])),
    )


def quantile_fit(x: FloatArray, *, within: bool = False) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Index from the ratio of two quantile ranges, scale from one; `within` moves the index into the table."""
    q05, q25, q50, q75, q95 = np.quantile(x, (0.05, 0.25, 0.5, 0.75, 0.95), axis=-1)
    table = _table()
    ratio = np.log((q95 - q05) / (q75 - q25))
    index = table.index(np.clip(ratio, *table.ratios) if within else ratio)
    return index, (q75 - q25) / (2 * table.quantiles(index)[..., 0]), q50


def quantile_errors(index: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Errors of the quantile estimates to first order, from the covariance of five sample quantiles."""
    table = _table()
    q75, q95, f75, f95 = np.moveaxis(table.quantiles(index), -1, 0)
    p = np.array([0.05, 0.25, 0.75, 0.95])
    f = np.stack([f95, f75, f75, f95], axis=-1)
    joint = (np.minimum(p[:, None], p) - np.outer(p, p)) / (f[:, :, None] * f[:, None, :])
    step = 1e-4
    ratio = np.log(q95 / q75)
    slope = (table.index(ratio + step) - table.index(ratio - step)) / (2 * step)
    outer, inner = np.array([-1.0, 0, 0, 1]), np.array([0.0, -1, 1, 0])
    to_index = slope[:, None] * (outer / (2 * q95)[:, None] - inner / (2 * q75)[:, None])
    bend = (table.quantiles(index + step) - table.quantiles(index - step))[:, 0] / (2 * step * q75)
    to_scale = inner / (2 * q75)[:, None] - bend[:, None] * to_index
    index_error, scale_error = (np.sqrt(np.einsum("ki,kij,kj->k", g, joint, g)) for g in (to_index, to_scale))
    return index_error, scale_error, np.pi / (2 * gamma(1 + 1 / index))  # the median: 1 / (2 density at 0)
