"""Budget maintenance and the sequential steps of budgeted SGD, on numbers alone.

A support set s_1..s_n with coefficients A (n, k) stands for f_c(x) = sum_j A_jc K(s_j, x). All that the steps need
of the vectors are "values": gamma |a - b|^2 for rbf, K(a, b) for the other kernels. Values between supports, between
supports and the rows of a block, and inside the block are computed before the first step. So a new support has its
values; for a merged point z = sum_i c_i s_i, sum_i c_i = 1,

    |z - x|^2 = sum_i c_i |s_i - x|^2 - 1/2 sum_ij c_i c_j |s_i - s_j|^2,

so no kernel is ever evaluated on vectors (Wang, Crammer and Vucetic 2012; Qaadan and Glasmachers 2018).

`steps` is the loop, `merge` what it does if the budget is full, `values` the kernel values.

A first fit waits for the compiler. So arguments that a strategy does not need are None, as numba does not compile their
branches, and literal arguments have a type, np.int64(0): numba would compile a function again for a literal 0 or True.
"""
