"""Trained models: arrays and a decision function. Rows go in raw; the model scales them itself."""

from streamsvm.models.base import Header as Header
from streamsvm.models.base import Model as Model
from streamsvm.models.budget import BudgetModel as BudgetModel
from streamsvm.models.ensemble import EnsembleModel as EnsembleModel
from streamsvm.models.expansion import ExpansionModel as ExpansionModel
from streamsvm.models.expansion import KernelModel as KernelModel
from streamsvm.models.expansion import LinearModel as LinearModel
from streamsvm.models.experts import ExpertsModel as ExpertsModel
from streamsvm.models.local import LocalBudgetModel as LocalBudgetModel
from streamsvm.models.local import LocalModel as LocalModel

StreamModel = BudgetModel | ExpertsModel  # can continue learning
