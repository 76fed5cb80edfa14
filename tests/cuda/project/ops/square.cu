// A module by Python's own header, which takes the addresses of tensors: it compiles at once.
#include <Python.h>

#include "position.h"

__global__ void square_kernel(const float* x, float* y, int n) {
  const int i = POSITION;
  if (i < n) y[i] = SCALE * x[i] * x[i];
}

static PyObject* square(PyObject*, PyObject* arguments) {
  Py_ssize_t x, y, n;
  if (!PyArg_ParseTuple(arguments, "nnn", &x, &y, &n)) return nullptr;
  square_kernel<<<(n + 31) / 32, 32>>>(reinterpret_cast<float*>(x), reinterpret_cast<float*>(y), n);
  if (cudaDeviceSynchronize() != cudaSuccess) return PyErr_Format(PyExc_RuntimeError, "no launch");
  Py_RETURN_NONE;
}

static PyMethodDef functions[] = {{"square", square, METH_VARARGS, nullptr}, {}};
static PyModuleDef about = {PyModuleDef_HEAD_INIT, "_C", nullptr, -1, functions};
extern "C" {
PyObject* PyInit__C(void) { return PyModule_Create(&about); }
}
