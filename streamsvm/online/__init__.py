"""river's door to budgeted SGD."""

from streamsvm.online.classifier import BSGDClassifier

__all__ = ["BSGDClassifier"]
