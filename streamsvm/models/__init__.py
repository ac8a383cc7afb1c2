"""Trained models: arrays and a decision function. Rows go in raw; the model scales them itself."""

from streamsvm.models.base import Header as Header
from streamsvm.models.base import Model as Model
from streamsvm.models.budget import BudgetModel as BudgetModel
from streamsvm.models.expansion import ExpansionModel as ExpansionModel
from streamsvm.models.experts import ExpertsModel as ExpertsModel
from streamsvm.models.kernel import KernelModel as KernelModel
from streamsvm.models.linear import LinearModel as LinearModel
from streamsvm.models.local import LocalModel as LocalModel
from streamsvm.models.local_budget import LocalBudgetModel as LocalBudgetModel

StreamModel = BudgetModel | ExpertsModel  # can continue learning
