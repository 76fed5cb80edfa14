/// The runtime but for its Python module, in one translation unit: PyTorch's headers, read once, are
/// nearly all of what compiling it costs.
#include "autograd.cpp"
#include "derivative.cpp"
#include "kernel.cpp"
#include "operator.cpp"
#include "signature.cpp"
