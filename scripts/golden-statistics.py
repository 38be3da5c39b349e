#!/usr/bin/env python3
"""Computes with scipy what packages/projects/test/statistics.test.ts compares with.

Needs Debian's python3-scipy: python3 scripts/golden-statistics.py > packages/projects/test/golden/statistics.json
"""
import json
import math

import numpy as np
from scipy import special, stats


def wilson(hits, of):
    ci = stats.binomtest(hits, of).proportion_ci(confidence_level=0.95, method="wilson")
    return [ci.low, ci.high]


def newcombe(a, n1, b, n2):
    (l1, u1), (l2, u2) = wilson(a, n1), wilson(b, n2)
    p1, p2 = a / n1, b / n2
    return [p1 - p2 - math.hypot(p1 - l1, u2 - p2), p1 - p2 + math.hypot(u1 - p1, p2 - l2)]


def newcombe_paired(a, b, c, d):
    n = a + b + c + d
    (l1, u1), (l2, u2) = wilson(a + b, n), wilson(a + c, n)
    p1, p2 = (a + b) / n, (a + c) / n
    margins = (a + b) * (c + d) * (a + c) * (b + d)
    numerator = a * d - b * c
    if numerator > 0:
        numerator = max(numerator - n / 2, 0)
    phi = 0 if margins == 0 else numerator / math.sqrt(margins)
    low = (p1 - l1) ** 2 - 2 * phi * (p1 - l1) * (u2 - p2) + (u2 - p2) ** 2
    high = (u1 - p1) ** 2 - 2 * phi * (u1 - p1) * (p2 - l2) + (p2 - l2) ** 2
    return [p1 - p2 - math.sqrt(low), p1 - p2 + math.sqrt(high)]


def welch(a, b):
    t, p = stats.ttest_ind(a, b, equal_var=False)
    va, vb = np.var(a, ddof=1) / len(a), np.var(b, ddof=1) / len(b)
    df = (va + vb) ** 2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1))
    half = stats.t.ppf(0.975, df) * math.sqrt(va + vb)
    delta = np.mean(a) - np.mean(b)
    return {"t": t, "df": df, "p": p, "low": delta - half, "high": delta + half}


def canary(failures, runs, p0):
    passes = runs - failures
    above = stats.beta.sf(p0, failures + 1, passes + 1)
    log = special.betaln(failures + 1, passes + 1) + math.log(above)
    return math.exp(log - failures * math.log(p0) - (passes + 1) * math.log1p(-p0))


def needed(share, effect):
    za, zb = stats.norm.isf(0.025), stats.norm.isf(0.2)
    return math.ceil((za * math.sqrt(share) + zb * math.sqrt(share - effect**2)) ** 2 / effect**2)


rng = np.random.default_rng(20261118)
first = [round(v, 4) for v in rng.normal(10, 2, 23)]
second = [round(v, 4) for v in rng.normal(11.5, 3.5, 31)]
small = [round(v, 4) for v in rng.normal(10, 2, 6)]
tied = [int(v) for v in rng.integers(0, 5, 20)]
tied_too = [int(v) for v in rng.integers(1, 6, 25)]
pairs = [[round(a, 4), round(a + d, 4)] for a, d in zip(rng.normal(5, 1, 40), rng.normal(0.4, 0.8, 40))]
differences = np.array([b - a for a, b in pairs])
boot = stats.bootstrap((differences,), np.mean, n_resamples=200000, method="percentile", random_state=7)

print(json.dumps({
    "scipy": __import__("scipy").__version__,
    "normalTail": [[z, stats.norm.sf(z)] for z in (-3.0, -0.5, 0.0, 0.1, 1.0, 1.7, 1.8, 2.5, 6.0, 9.0)],
    "normalUpper": [[c, stats.norm.isf(c)] for c in (0.3, 0.05, 0.025, 0.001, 0.9)],
    "studentTail": [[t, df, stats.t.sf(t, df)] for t in (-2.0, 0.3, 1.96, 5.0) for df in (1.0, 4.7, 30.0, 400.0)],
    "studentUpper": [[0.025, df, stats.t.isf(0.025, df)] for df in (1.5, 8.2, 52.1)],
    "betaCdf": [[x, a, b, stats.beta.cdf(x, a, b)]
                for x, a, b in ((0.1, 1, 20), (0.5, 12, 3), (0.9, 2, 2), (0.3, 80, 220), (0.02, 1, 1))],
    "mcnemar": [[b, c, stats.binomtest(b, b + c, 0.5).pvalue]
                for b, c in ((0, 1), (1, 9), (5, 5), (12, 3), (30, 61), (2, 40))],
    "wilson": [[k, n, *wilson(k, n)] for k, n in ((0, 10), (1, 7), (37, 90), (50, 50))],
    "newcombe": [[*x, *newcombe(*x)] for x in ((56, 70, 48, 80), (9, 10, 3, 10), (0, 10, 0, 20))],
    "newcombePaired": [[*x, *newcombe_paired(*x)] for x in ((20, 12, 2, 16), (29, 0, 2, 28), (1, 1, 7, 12), (53, 0, 0, 1))],
    "samples": {"first": first, "second": second, "small": small, "tied": tied, "tiedToo": tied_too, "pairs": pairs},
    "welch": welch(first, second),
    "mannWhitney": {
        "large": list(stats.mannwhitneyu(first, second)),
        "small": list(stats.mannwhitneyu(small, second)),
        "tied": list(stats.mannwhitneyu(tied, tied_too)),
    },
    "bootstrap": {"estimate": float(differences.mean()), "low": boot.confidence_interval.low,
                  "high": boot.confidence_interval.high, "error": float(boot.standard_error)},
    "signEvidence": [[w, l, math.exp(special.betaln(w + 1, l + 1)) * 2.0 ** (w + l)]
                     for w, l in ((0, 0), (5, 0), (10, 2), (30, 30), (120, 60))],
    "canaryEvidence": [[k, n, p0, canary(k, n, p0)]
                       for k, n, p0 in ((0, 0, 0.1), (1, 1, 0.1), (3, 5, 0.1), (10, 100, 0.1), (40, 200, 0.1), (0, 50, 0.02))],
    "pairsNeeded": [[s, e, needed(s, e)] for s, e in ((0.3, 0.13), (0.2, 0.2), (0.4, 0.05))],
}, indent=1))
