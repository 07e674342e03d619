"""Writes golden/drift.json: samples, and what Evidently says of them.

    pip install evidently
    python3 tests/parity/make_drift_golden.py

Every number is computed by Evidently's own functions (evidently.legacy.calculations.stattests), and by the calls of
SciPy that it makes for a statistic and its p-value.
"""

import json
import os

import numpy as np
import pandas as pd
from evidently.legacy.calculations.stattests import (chi_stat_test, jensenshannon_stat_test, ks_stat_test, psi_stat_test,
                                                     wasserstein_stat_test)
from evidently.legacy.core import ColumnType
from scipy import stats


def score(test, reference, current, kind):
    value = test.func(pd.Series(reference), pd.Series(current), kind, 0.1)[0]
    return float(value)


def numbers(name, reference, current):
    reference = np.round(np.asarray(reference, dtype=float), 6)
    current = np.round(np.asarray(current, dtype=float), 6)
    kind = ColumnType.Numerical
    case = {"name": name, "reference": reference.tolist(), "current": current.tolist(),
            "psi": score(psi_stat_test, reference, current, kind),
            "jensen_shannon": score(jensenshannon_stat_test, reference, current, kind),
            "wasserstein": score(wasserstein_stat_test, reference, current, kind),
            "ks": float(stats.ks_2samp(reference, current)[0]),
            "ks_p": score(ks_stat_test, reference, current, kind)}
    if 1 < len(set(reference)) <= 20:
        case["chi_squared_p"] = score(chi_stat_test, reference, current, kind)
    return case


def categories(name, reference, current):
    kind = ColumnType.Categorical
    values = [[str(i)] * n for i, n in enumerate(reference)], [[str(i)] * n for i, n in enumerate(current)]
    a, b = [sum(v, []) for v in values]
    return {"name": name, "reference": reference, "current": current,
            "psi": score(psi_stat_test, a, b, kind), "jensen_shannon": score(jensenshannon_stat_test, a, b, kind),
            "chi_squared_p": score(chi_stat_test, a, b, kind)}


def main():
    r = np.random.default_rng(7)
    cases = {
        "numbers": [
            numbers("the same", r.normal(size=400), r.normal(size=250)),
            numbers("moved", r.normal(size=300), r.normal(0.4, size=300)),
            numbers("far", r.normal(size=200), r.normal(3, 2, size=80)),
            numbers("skewed", r.exponential(size=500), r.exponential(1.3, size=333)),
            numbers("few values", r.integers(0, 6, size=200), r.integers(1, 8, size=150)),
            numbers("constant", np.ones(40), np.ones(30)),
            numbers("ties", np.round(r.normal(size=250), 1), np.round(r.normal(0.1, size=120), 1)),
        ],
        "categories": [
            categories("the same", [100, 200, 300, 50], [48, 111, 140, 26]),
            categories("moved", [100, 200, 300, 50], [100, 50, 30, 120]),
            categories("one is gone", [1000, 20, 3], [90, 9, 0]),
            categories("a rare one is gone", [99999, 3], [500, 0]),
            categories("a new one", [300, 300, 0], [30, 20, 10]),
        ],
    }
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", "drift.json")
    with open(path, "w", encoding="utf-8") as out:
        json.dump(cases, out)
        out.write("\n")


if __name__ == "__main__":
    main()
