"""Explanations of a model: columns that count, and for a row its gradient, support vectors and Shapley values."""
