"""Why a model says what it says: columns that count, and for a row its gradient, support vectors and Shapley values."""
