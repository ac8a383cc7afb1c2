"""Risks of linear functions, known by passes over the rows: what cutting planes are taken of.

R_c(w) >= 0 is convex and a sum of losses of the scores f = X w, for each column c. A pass gives, at any point, the
scores, the risk and its slope; along a line whose scores are known, the minimum needs no pass.
"""

from streamsvm.risks.base import LinearRisk, Passes
from streamsvm.risks.hinge import HingeRisk
from streamsvm.risks.pairs import PairRisk

__all__ = ["HingeRisk", "LinearRisk", "PairRisk", "Passes"]
