"""Texts that parameters and attributes of several classes share, as numpydoc sections; see `texts.documented`.

Each says what the parameter is, what a larger value does, and its unit and range. Defaults come from signatures.
"""

PARAMETERS = """\
Parameters
----------
lam : float or None
    lambda, the strength of the regularisation, above 0. Larger: a smoother function. None: 1 / (n C), with
    shorter steps, see Notes; and in `partial_fit`, which does not know n, 1e-4 / C.
C : float or "search"
    Inverse strength of the regularisation: upper bound of the dual variables, times class and sample weights. Above 0.
    Larger: fewer training errors, a less smooth function, a longer fit.
epsilon : float
    Half-width of the tube within which errors cost nothing, at least 0, in the units of t (see `scale_targets`).
    Larger: fewer support vectors, coarser answers.
scale_targets : bool
    Learn t = (y - mean) / standard deviation, and answer in units of y. False: t is y.
quantile : float or None
    Predict this quantile of y, such as 0.9, by the pinball loss, with an epsilon of 0. Between 0 and 1. None: the
    middle, by the epsilon-insensitive loss.
interval : float or None
    Level of `predict_interval`, between 0 and 1; larger: wider intervals. A fifth of the rows, at most 10,000, is
    held out to measure the errors (split conformal prediction). None: no intervals.
nu : float or None
    Train nu-SVC, as `sklearn.svm.NuSVC`, instead of using C, and with an intercept: an upper bound of the share of rows
    beyond the margin and a lower bound of the share of support vectors. Above 0, at most twice the share of the
    smaller class. Larger: a wider margin. None: C decides.
kernel : {"rbf", "laplacian", "matern", "cauchy", "poly", "linear", "search"}
    Similarity of two rows: rbf exp(-gamma |a-b|^2), laplacian exp(-gamma |a-b|_1), matern p(s) exp(-s) with
    s = sqrt(2 nu) gamma |a-b|, cauchy 1 / (1 + gamma |a-b|^2), poly (gamma a'b + coef0)^degree, linear a'b.
   
gamma : float, "scale", "auto" or "search"
    Inverse width of the kernel, above 0. Larger: a more local, less smooth function. "scale": 1 / (n_features *
    X.var()). "auto": 1 / n_features. matern uses the square roots of these, laplacian 1 / (n_features * X.std()) for
    "scale". linear ignores it.
degree : int
    Degree of the poly kernel, at least 1. Larger: interactions of more features. Other kernels ignore it.
coef0 : float
    Constant in the poly kernel, at least 0. Larger: low-order terms count more. Other kernels ignore it. Negative
    values, which `sklearn.svm.SVC` accepts, are an error: the kernel need not be positive semidefinite.
kernel_params : dict or None
    Further options of the kernel. For matern {"nu": 0.5}, 1.5 (the default) or 2.5; larger: a smoother function.
fit_intercept : bool
    Learn an intercept, a constant that is added to the decision function.
loss : {"hinge", "logistic"}
    Cost of a training error. "logistic" is log(1 + exp(-y f)): then 1 / (1 + exp(-f)) is the probability of a class
    against the rest, and there is a `predict_proba`, normalised if there are more than two classes.
multi_class : {"ovo", "ovr"}
    More than two classes. "ovo": a problem for each pair of classes, which vote. "ovr": a problem for each class
    against the rest, of which the largest decision value wins.
tol : float
    Stopping tolerance, above 0: the largest violation of the KKT conditions. Larger: a shorter, less exact fit. Kernel
    values are float32, so values far below 1e-5 cannot be reached.
class_weight : dict, "balanced", "search" or None
    Factor on C for each label, above 0. Larger: errors on this class cost more. "balanced": n_samples / (n_classes *
    count). None: 1. If rows have several labels, these are numbers of columns of y, each of which is balanced alone.
probability : bool, "sigmoid" or "isotonic"
    Calibrate probabilities by five-fold cross-validation, which takes five more fits. Then there is a
    `predict_proba`, and `predict` returns the most probable class, or with `class_weight` that of the decision values.
    True: "sigmoid".
threshold : str or None
    What the decision threshold of two classes is chosen for, by five-fold cross-validation: "f1", "balanced_accuracy",
    "precision=0.9" (the highest recall with at least this precision) or "recall=0.9". They are those of classes_[1].
    If rows have several labels, each has a threshold, chosen alone, or with "f1_micro" together. `decision_function`
    does not change. None: the threshold is 0.
costs : dict or None
    Cost of each error, at least 0, for example {("yes", "no"): 5} for predicting "no" if "yes" is true; 1 for errors
    that are not listed. `predict` returns the label with the smallest expected cost, by probabilities ("sigmoid" if
    `probability` is False). Excludes `threshold`. If rows have several labels, {(0, "rest"): 5} is for missing that of
    column 0, and ("rest", 0) for a false one. None: all errors cost the same.
metric : {"none", "diagonal", "full", "search"}
    Learn feature weights ("diagonal") or a linear map of the features ("full") from a sample, and choose kernel, C and
    gamma with them if these are left at their defaults. It is kept only if it decides held-out rows better.
    "search": like "diagonal", but chosen with other values of "search" only.
metric_params : dict or None
    Options of the metric: "iterations" is its maximum number of updates (12), "rank" that of a full one (64), and
    "factor" a known metric as numbers.
search_params : dict or None
    How fits on a sample find values of "search", and what is chosen with a metric. "time_budget" is that of the whole
    fit, in seconds or like "10m". "trials" is the maximum number of search steps. "sample" is
    the number of rows (20,000). "scoring" is "accuracy", "balanced_accuracy" or "log_loss".
random_state : int, RandomState or None
    Seed of the random choices: an int makes fits repeatable.
early : bool or "search"
    Stop after one level of partitions: each row is then decided by the model of its nearest partition. Much faster
    to train, slightly less accurate. Below about 16,000 rows, with `levels` None, nothing is divided and the model is
    exact.
children : int
    Number of partitions that a partition is divided into, at least 2. Larger: fewer levels, smaller partitions.
levels : int or None
    Number of levels of division, at least 1. Larger: smaller partitions at the bottom. None: chosen from n_samples.
early_level : int or None
    Level of the early model, from 1 to `levels`. Larger: faster to train, less accurate. None: chosen from n_samples.
sample : int
    Number of rows that k-means clusters, at least 2. Larger: better partitions, slower clustering.
clustering : {"input", "kernel"}
    Space in which k-means clusters the rows: that of the features or that of the kernel.
part_rows : int or None
    Maximum number of rows of a partition. Larger: fewer partitions, more memory. None: chosen from the memory limit.
adaptive : bool
    Sample the rows for k-means from the support vectors of the level before.
refine : bool
    Solve on the support vectors of level 1 before solving on all rows. An early model ignores it.
neighbours : int
    Number of nearest partitions whose mean decides a row, in an early model with clustering "input", at least 1.
    Larger: smoother; prediction takes as many times longer.
part_metric : int
    Number of times each partition of an early model is fitted again to learn feature weights, at least 0. Larger: a
    longer fit. Weights are kept only if they decide a held-out fifth of the partition better.
cache_size : float
    Memory for kernel rows while solving, in MB, at least 0. Larger: fewer kernel values are computed again. Only rows
    with at least 128 nonzeros are cached.
budget : int
    Maximum number of support vectors, at least 2. Larger: more accurate, slower, more memory.
merge : int
    Number of support vectors that become one when the budget is full, at least 2. Larger: less frequent, coarser
    merging. 2 is the classic method; 3 to 5 is a good range.
merge_all : bool
    Always merge that many, as in the paper. By default fewer merge when the next one would lose more than removing the
    second weakest support vector, which is more accurate with small budgets.
strategy : {"sequence", "gradient", "project", "remove", "forget", "lru"}
    How support vectors are reduced when the budget is full: merge them one by one or at once, project the weakest
    on the others, or remove it; "forget" removes the oldest, "lru" the one that has not been the nearest to a row for
    the longest. Merging needs the rbf kernel.
epochs : int
    Number of passes over the rows, at least 1, each in a new order. Larger: more accurate, a longer fit.
average : bool
    Predict by the mean of the weights over all steps, step t weighted by t. It helps if the budget is rarely full, and
    harms if the data changes over time.
max_features : int
    Maximum number of features, at least 1. Larger: more memory, 4 bytes for each support vector and feature. Features
    beyond are ignored with a warning.
scale : {"none", "minmax", "standard", "maxabs", "robust", "quantile", "search"}
    Scaling of the features, learned from the training rows and stored in the model. Useful for a `Store` and dask
    arrays, which a scaler in a pipeline cannot read block by block. Support vectors and weights are those of scaled
    features.
gaps : {"mean", "median", "most_frequent", "refuse"} or None
    Value that replaces NaN, learned from the training rows and stored in the model. "refuse": NaN is an error. None:
    the mean for data frames, arrays in memory and stores of tables, with a warning; an error for dask arrays and other
    stores unless `mark_gaps`.
mark_gaps : bool
    Add an indicator for each column with missing values in the training rows, as scikit-learn's `SimpleImputer` with
    add_indicator: 1 if the value was missing, else 0. The model adds them itself.
category : str, list of str or None
    Columns of number codes of a data frame to take as categories, as `ingest --category` does: 7, 7.0 and "007" are the
    same one. None: columns of numbers are numbers, also if they are stored as text; pandas' categories are categories.
target_encode : str, list of str, dict or None
    Text columns of a data frame to replace by the mean target of each text, as scikit-learn's `TargetEncoder` does.
    {"town": 20}: with a smoothing, "auto" or a number of rows. The model encodes new rows itself.
memory_limit : int, str or None
    Limit of the memory of the whole process, in bytes or like "2GiB". Larger: faster. Rows that do not fit are read
    from disk. None: a share of the free memory.
n_jobs : int or None
    Number of threads, at least 1. Larger: faster, up to the number of cores. None or -1: all cores, or one thread
    inside a parallel joblib worker.
device : str
    Device that computes kernel sums of dense rows, of fits and predictions: "cpu", "cuda", "cuda:1", "xpu", "mps", or
    "auto", a graphics processor if there is one and enough rows. All but "cpu" need the extra gpu.
client : distributed.Client, False or None
    Dask cluster that computes. None: the active client, if there is one, else threads. False: threads.
verbose : int
    0: silent. 1: progress on stderr, as bars on a terminal and as lines elsewhere. Larger: also each solver step.
"""

ATTRIBUTES = """\
Attributes
----------
classes_ : ndarray of shape (n_classes,)
    Labels, sorted.
n_features_in_ : int
    Number of features seen during fit.
feature_names_in_ : ndarray of shape (n_features_in_,)
    Names of the features, if X has names that are all strings.
feature_importances_ : ndarray of shape (n_features_in_,)
    Share of each feature in the decisions, from the metric if there is one, else from the support vectors; they sum
    to 1.
model_ : streamsvm.models.Model
    The trained model. `save` writes it, `streamsvm.load_model` reads it.
chosen_ : dict
    Values of the parameters that were chosen, by name; only if there was a choice ("search" or a metric).
expected_ : dict
    Only if there was a choice: the accuracy to expect on new rows, `score`, with a 95 % interval from `low` to `high`.
    `rows` is the number of held-out rows, and `model` says whether the final model itself decided them.
metric_ : dict
    Only if there was a choice: its steps, the score on held-out rows with and without the metric, and the features
    that count.
threshold_ : dict
    Only with `threshold`: its value, the scores on held-out rows, and the scores to expect on new rows.
objective_ : float
    Value of the dual objective, summed over all problems and partitions.
dual_gap_ : float
    Primal minus dual objective, summed over all problems and partitions: 0 at the exact solution.
n_iter_ : int
    Number of iterations.
n_passes_ : int
    Number of passes over the rows.
support_ : ndarray of shape (n_SV,)
    Indices of the support vectors, class by class; exact models only, as the next four. With multi_class "ovr" in the
    order of the rows.
support_vectors_ : {ndarray, csr_array} of shape (n_SV, n_features_in_)
    Support vectors, in the order of `support_`.
dual_coef_ : ndarray of shape (n_classes - 1, n_SV)
    Signed dual coefficients, in the layout of `sklearn.svm.SVC`. With multi_class "ovr" a row for each class.
intercept_ : ndarray of shape (n_classes * (n_classes - 1) / 2,)
    Intercepts of the pairs of classes, in the order and with the signs of `sklearn.svm.SVC`; 0 without
    `fit_intercept`. With multi_class "ovr" one for each class.
n_support_ : ndarray of shape (n_classes,)
    Number of support vectors of each class. With multi_class "ovr" of each problem.
coef_ : ndarray of shape (1 or n_classes, n_features_in_)
    Weights of the features.
offset_ : float
    rho: `decision_function` is `score_samples` minus this.
"""

BATCH_METHODS = """\
Parameters
----------
X : {array-like, sparse matrix, dask array, data frame, Store} of shape (n, n_features)
    The rows: numpy, scipy CSR, a dask array, a data frame of pandas, polars, dask or Arrow, or a `Store`. A dask array
    or Store is read block by block. The answers for a dask array are a dask array.
y : array-like of shape (n,) or (n, k), or None
    Labels or targets of the rows. None: those of a Store, or no labels are needed.
sample_weight : array-like of shape (n,) or None
    Weight of each row, at least 0. Larger: errors on this row cost more. None: those of a Store, else 1.
groups : array-like of shape (n,) or None
    Group of each row: rows of a group are held out together, for probabilities, thresholds and searches. None: those
    of a Store, else each row is a group.
qid : array-like of shape (n,) or None
    Query of each row: only rows of one query are compared. None: those of a Store, else all rows are one query.
classes : array-like of shape (n_classes,) or None
    All labels that will appear; needed in the first call only.
level : float or None
    Probability that an interval contains y, between 0 and 1. Larger: wider intervals. None: `interval`.
path : str or Path
    Folder or URL of the model. A model there is replaced.
callbacks : callback
    Of `sklearn.callback`, for example `ProgressBar`.
predict : "default", "pandas" or "polars"
    "default": numpy arrays. The others: series of that library, and data frames for several columns.
"""

ONLINE_METHODS = """\
Parameters
----------
x : dict
    Features of the event by name: numbers, booleans or text.
y : label or number
    Label or target of the event; in `learn_many` a pandas.Series of those of all events.
X : pandas.DataFrame
    Events, one in each row.
rows : ndarray of shape (m, n_columns)
    Events as `row_of` returns them, dense float32.
decisions : ndarray of shape (m, n_columns)
    Decision values.
model : BudgetModel or ExpertsModel
    What `to_model` returned, or `streamsvm.load_model`.
scaling : Scaling or None
    Scaling of the events before this learner, to store in the model. None: none.
more : object
    Further values to store in the model, as JSON.
max_features : int or None
    Maximum number of features from now on. None: as before.
max_classes : int or None
    Maximum number of labels from now on. None: as before.
kwargs : object
    Ignored.
"""

FUNCTIONS = """\
Parameters
----------
store : Store
    The rows, with labels where the function needs them.
config : FitConfig
    Options of the fit, from `config.build_config` or `config.load_config`.
events : Events
    Gets what happens, as `Record`. heard: warnings become Python warnings, and nothing else is reported.
model_path : Path or None
    Folder or URL of the model to write. A model there is replaced. None: no model is written.
run_dir : Path or None
    Folder for records, checkpoints and results of the run. None: none are kept.
resume : bool
    Continue the interrupted run in `run_dir`.
performance_report : Path or None
    HTML file for dask's report of the tasks. None: none.
path : str or Path
    Folder or URL of the model.
model : Model
    A trained model.
layers : (str, mapping)
    Where options come from, for messages, and their nested values. Later layers win.
overrides : (str, mapping)
    Where options come from, for messages, and their nested values, which replace those of the file.
"""

RAISES = """\
Raises
------
ConfigError
    An unknown option, a value out of range, or options that contradict each other or the data.
DataError
    Rows or labels that are invalid, or do not fit the model. The message names file and line, or chunk and row.
MemoryLimitError
    The work cannot stay below the memory limit. The message says how much it needs.
NotFoundError
    Nothing exists at this place.
ModelError
    Not a model, of an unknown kind or version, or without what the function needs.
CorruptDataError
    Data do not match their checksums.
StorageError
    A place cannot be read or written.
StreamSVMError
    Any other failure of this package, by its kind: files, runs, workers.
"""

STORE_METHODS = """\
Parameters
----------
url : str or Path
    Folder, or URL that fsspec knows.
X : {array-like, sparse matrix, dask array, data frame} of shape (n, d)
    The rows.
y : array-like of shape (n,) or None
    Labels or targets.
sample_weight : array-like of shape (n,) or None
    Weight of each row, at least 0. None: 1.
qid : array-like of shape (n,) or None
    Query of each row, for ranking.
group : array-like of shape (n,) or None
    Group of each row: rows of a group are held out together.
feature_names : tuple of str or None
    Names of the d features.
like : Layout, dict or None
    Columns into which a data frame is encoded, those of an earlier one; or its text columns that a fit target-encodes,
    each with its smoothing: "auto", or a number of rows. None: its own.
category : collection of str
    Columns of a data frame whose numbers are codes.
max_rows : int or None
    Maximum number of rows of a block, at least 1. Larger: fewer blocks, more memory. None: a chunk, or several small
    chunks of up to 4 MiB together, 32 MiB in a store of many chunks.
start : int
    First row.
stop : int
    Row after the last one.
ids : ndarray of shape (m,)
    Row numbers, from 0 to n - 1.
row : int
    Row number, from 0 to n - 1.
view : View
    How the rows are read.
attrs : dict
    Attributes of a store, which describe the columns.
"""
