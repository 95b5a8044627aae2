package npu

// Numerics is the version of the kernels' arithmetic: the orders of reduction, the fixed-point
// sums, the kernels' own exp and log, and the float64 functions (internal/rounded) behind losses,
// learning rates and rotary tables. It rises with each change that gives other bits.
const Numerics = 4
