"""scikit-learn: the rules by which its estimators check weights of samples."""

from __future__ import annotations

from sklearn.utils.validation import _check_sample_weight as check_sample_weight

__all__ = ["check_sample_weight"]
