package npu

// Numerics is the version of the kernels' arithmetic: the orders of reduction, the fixed-point
// sums and the kernels' own exp and log. It rises with each change that gives other bits.
const Numerics = 3
