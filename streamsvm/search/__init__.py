"""Options chosen by cross-validation, with what solvers can share among points and folds."""
