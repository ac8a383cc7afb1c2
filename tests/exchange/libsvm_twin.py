"""LIBSVM's model file and decision by its documentation alone; and its own code on what was read.

Of a pair (i, j), i < j: sum_{s of class i} sv_coef[j-1][s] K(s, x) + sum_{s of class j} sv_coef[i][s] K(s, x) - rho, a
vote for i where positive, else for j; the first label with most votes wins.
"""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
from private_sklearn import libsvm


class Twin:
    def __init__(self, path, d):
        head, _, tail = path.read_text(encoding="ascii").partition("\nSV\n")
        self.head = {line.split()[0]: line.split()[1:] for line in head.splitlines()}
        self.k = int(self.head["nr_class"][0])
        lines = tail.splitlines()
        assert len(lines) == int(self.head["total_sv"][0])
        self.coef = np.array([line.split()[: self.k - 1] for line in lines], float).reshape(-1, self.k - 1).T
        self.support = np.zeros((len(lines), d))
        for i, line in enumerate(lines):
            last = 0
            for word in line.split()[self.k - 1 :]:
                index, value = word.split(":")
                assert int(index) > last
                last = int(index)
                self.support[i, last - 1] = float(value)
        self.rho = np.array(self.head["rho"], float)
        self.labels = [int(word) for word in self.head.get("label", [])]
        self.counts = [int(word) for word in self.head.get("nr_sv", [])]

    def kernel(self, a, b):
        number = {name: float(self.head[name][0]) for name in ("gamma", "coef0", "degree") if name in self.head}
        match self.head["kernel_type"]:
            case ["linear"]:
                return a @ b
            case ["polynomial"]:
                return (number["gamma"] * (a @ b) + number["coef0"]) ** number["degree"]
            case ["sigmoid"]:
                return math.tanh(number["gamma"] * (a @ b) + number["coef0"])
            case ["rbf"]:
                return math.exp(-number["gamma"] * ((a - b) @ (a - b)))

    def decisions(self, X):
        """(m, pairs); of a regression (m, 1)."""
        K = np.array([[self.kernel(x, s) for s in self.support] for x in X]).reshape(len(X), len(self.support))
        if not self.labels:
            return (K @ self.coef[0] - self.rho[0])[:, None]
        ends = np.cumsum([0, *self.counts])
        own = [slice(ends[c], ends[c + 1]) for c in range(self.k)]
        return np.stack(
            [
                K[:, own[i]] @ self.coef[j - 1, own[i]] + K[:, own[j]] @ self.coef[i, own[j]] - rho
                for (i, j), rho in zip(combinations(range(self.k), 2), self.rho, strict=True)
            ],
            axis=1,
        )

    def predict(self, X):
        votes = np.zeros((len(X), self.k), int)
        for (i, j), values in zip(combinations(range(self.k), 2), self.decisions(X).T, strict=True):
            votes[np.arange(len(X)), np.where(values > 0, i, j)] += 1
        return np.array(self.labels)[votes.argmax(axis=1)]

    def by_its_code(self, X):
        """(m, pairs) by the LIBSVM that scikit-learn is built with."""
        names = {"polynomial": "poly"}
        kernel = self.head["kernel_type"][0]
        number = {name: float(self.head.get(name, ["0"])[0]) for name in ("gamma", "coef0", "degree")}
        values = libsvm.decision_function(
            np.ascontiguousarray(X, np.float64),
            np.arange(len(self.support), dtype=np.int32),
            self.support,
            np.array(self.counts or [len(self.support), 0], np.int32),
            np.ascontiguousarray(self.coef),
            -self.rho,
            np.empty(0),
            np.empty(0),
            svm_type=0 if self.labels else 3,
            kernel=names.get(kernel, kernel),
            degree=int(number["degree"]),
            gamma=number["gamma"],
            coef0=number["coef0"],
        )
        return values.reshape(len(X), -1)
