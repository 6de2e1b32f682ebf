// The Python module adadecay.kernels._native, in the limited API of Python
// 3.11, so that one build serves every later Python. Tensors come as addresses, sizes
// and type numbers in plain lists: no torch header, no torch at build time. Whoever
// calls keeps the tensors alive and has checked that they lie in memory without gaps.
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cmath>
#include <cstring>
#include <new>
#include <vector>

#include "isa.hpp"
#include "statistics.hpp"
#include "step.hpp"

namespace {

using adadecay::Isa;
using adadecay::isa_at;
using adadecay::kIsas;

const Isa* chosen = nullptr;

PyObject* forms(PyObject*, PyObject*) {
  PyObject* names = PyList_New(0);
  for (int k = 0; names != nullptr && k < kIsas; ++k) {
    if (isa_at(k) == nullptr) continue;
    PyObject* name = PyUnicode_FromString(isa_at(k)->name);
    if (name == nullptr || PyList_Append(names, name) != 0) Py_CLEAR(names);
    Py_XDECREF(name);
  }
  return names;
}

PyObject* form(PyObject*, PyObject*) { return PyUnicode_FromString(chosen->name); }

PyObject* revision(PyObject*, PyObject*) {
  return PyLong_FromLong(adadecay::kRevision);
}

PyObject* choose(PyObject*, PyObject* argument) {
  const char* name = PyUnicode_AsUTF8AndSize(argument, nullptr);
  if (name == nullptr) return nullptr;
  for (int k = 0; k < kIsas; ++k) {
    if (isa_at(k) != nullptr && std::strcmp(isa_at(k)->name, name) == 0) {
      chosen = isa_at(k);
      Py_RETURN_NONE;
    }
  }
  PyErr_Format(PyExc_ValueError, "this CPU or build has no kernel form named '%s'",
               name);
  return nullptr;
}

// Reading a list of whole numbers; on failure a Python error is set and ok is false.
struct Numbers {
  PyObject* list;
  Py_ssize_t length;
  bool ok = true;
  explicit Numbers(PyObject* from) : list(from), length(PyList_Size(from)) {
    if (length < 0) ok = false;
  }
  int64_t operator[](Py_ssize_t i) {
    PyObject* item = ok ? PyList_GetItem(list, i) : nullptr;
    const long long value = item != nullptr ? PyLong_AsLongLong(item) : -1;
    if (item == nullptr || (value == -1 && PyErr_Occurred())) ok = false;
    return value;
  }
};

// steps' arguments, in order: params, grads, buffers, sizes, types, layers, fresh.
bool read_tensors(PyObject* const* args, std::vector<adadecay::Tensor>& tensors) {
  Numbers params(args[0]), grads(args[1]), buffers(args[2]), sizes(args[3]),
      types(args[4]), layers(args[5]), fresh(args[6]);
  tensors.resize(params.ok ? static_cast<size_t>(params.length) : 0);
  bool ok = params.ok;
  for (size_t i = 0; ok && i < tensors.size(); ++i) {
    const Py_ssize_t k = static_cast<Py_ssize_t>(i);
    adadecay::Tensor& t = tensors[i];
    t.param = reinterpret_cast<char*>(params[k]);
    t.grad = reinterpret_cast<const char*>(grads[k]);
    // Without momentum there are no buffers, and none are listed.
    t.buffer = buffers.length == 0 ? nullptr : reinterpret_cast<char*>(buffers[k]);
    t.size = sizes[k];
    const int64_t type = types[k];
    t.layer = static_cast<int>(layers[k]);
    t.is_first_step = false;
    ok = params.ok && grads.ok && buffers.ok && sizes.ok && types.ok && layers.ok;
    if (ok && (type < 0 || type >= adadecay::kTypes || t.size < 0)) {
      PyErr_Format(PyExc_ValueError, "tensor %zd has type %lld and size %lld", k,
                   static_cast<long long>(type), static_cast<long long>(t.size));
      ok = false;
    }
    t.type = static_cast<adadecay::Type>(type);
  }
  for (Py_ssize_t i = 0; ok && i < fresh.length; ++i) {
    const int64_t k = fresh[i];
    ok = fresh.ok && k >= 0 && k < static_cast<int64_t>(tensors.size());
    if (ok) tensors[static_cast<size_t>(k)].is_first_step = true;
  }
  if (!ok && !PyErr_Occurred()) {
    PyErr_SetString(PyExc_ValueError, "the lists do not describe the same tensors");
  }
  return ok && fresh.ok;
}

int threads_for(const std::vector<adadecay::Tensor>& tensors, long available) {
  return adadecay::useful_threads(tensors, static_cast<int>(available < 1 ? 1 : available));
}

bool read_doubles(PyObject* const* args, double* to, int count) {
  for (int k = 0; k < count; ++k) {
    to[k] = PyFloat_AsDouble(args[k]);
    if (to[k] == -1.0 && PyErr_Occurred()) return false;
  }
  return true;
}

// A list of doubles that must be `count` long; None gives an empty one.
bool read_list(PyObject* list, size_t count, std::vector<double>& to) {
  if (list == Py_None) return true;
  const Py_ssize_t length = PyList_Size(list);
  if (length < 0) return false;
  if (static_cast<size_t>(length) != count) {
    PyErr_Format(PyExc_ValueError, "%zd numbers are known, not %zu", length, count);
    return false;
  }
  to.resize(count);
  for (size_t i = 0; i < count; ++i) {
    PyObject* item = PyList_GetItem(list, static_cast<Py_ssize_t>(i));
    if (item == nullptr || !read_doubles(&item, &to[i], 1)) return false;
  }
  return true;
}

bool append_all(PyObject* list, const std::vector<double>& numbers) {
  for (double value : numbers) {
    PyObject* number = PyFloat_FromDouble(value);
    const int failed = number == nullptr ? -1 : PyList_Append(list, number);
    Py_XDECREF(number);
    if (failed) return false;
  }
  return true;
}

// Bits of the argument `switches`.
enum { kNesterov = 1, kMaximize = 2, kDecoupled = 4, kUnitMean = 8 };

PyObject* step_with(PyObject* const* args) {
  std::vector<adadecay::Tensor> tensors;
  double numbers[5];
  std::vector<double> known;  // mean, deviation and average of each tensor's layer
  if (!read_tensors(args, tensors) || !read_doubles(args + 7, numbers, 5) ||
      !read_list(args[14], 3 * tensors.size(), known)) {
    return nullptr;
  }
  std::vector<adadecay::Known> layers(known.size() / 3);
  for (size_t i = 0; i < layers.size(); ++i) {
    layers[i] = {{1.0, known[3 * i], known[3 * i + 1]}, known[3 * i + 2]};
  }
  const long switches = PyLong_AsLong(args[12]);
  const long threads = PyLong_AsLong(args[13]);
  if (PyErr_Occurred()) return nullptr;
  const adadecay::Update update = {numbers[0],
                                   numbers[3],
                                   numbers[1],
                                   numbers[2],
                                   (switches & kNesterov) != 0,
                                   (switches & kMaximize) != 0,
                                   (switches & kDecoupled) != 0};
  const adadecay::Options options = {update, numbers[4], (switches & kUnitMean) != 0,
                                     threads_for(tensors, threads)};
  if (adadecay::unsupported(tensors, update.momentum != 0.0)) Py_RETURN_FALSE;
  if (update.momentum == 0.0) {
    for (adadecay::Tensor& t : tensors) t.buffer = nullptr;
  }
  if (args[15] != Py_None) {
    PyErr_SetString(PyExc_ValueError, "the last argument must be None");
    return nullptr;
  }
  bool enough_memory = true;
  Py_BEGIN_ALLOW_THREADS;
  try {
    adadecay::take_step(*chosen, tensors, options,
                        args[14] == Py_None ? nullptr : layers.data());
  } catch (const std::bad_alloc&) {
    enough_memory = false;  // thrown before any piece of work was handed out
  }
  Py_END_ALLOW_THREADS;
  if (!enough_memory) return PyErr_NoMemory();
  Py_RETURN_TRUE;
}

PyObject* step(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 16) {
    PyErr_Format(PyExc_TypeError, "step takes 16 arguments, not %zd", count);
    return nullptr;
  }
  try {
    return step_with(args);
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  }
}

// (grads, sizes, types, layers, threads) → mean and root of each tensor's layer, flat.
PyObject* parts_of(PyObject* const* args, PyObject* nothing) {
  PyObject* const lists[] = {args[0], args[0], nothing, args[1],
                             args[2], args[3], nothing};
  std::vector<adadecay::Tensor> tensors;
  if (!read_tensors(lists, tensors)) return nullptr;
  const long threads = PyLong_AsLong(args[4]);
  if (PyErr_Occurred()) return nullptr;
  std::vector<adadecay::Moments> parts(tensors.size());
  bool enough_memory = true;
  Py_BEGIN_ALLOW_THREADS;
  try {
    adadecay::compute_moments(*chosen, tensors,
                              threads_for(tensors, threads),
                              parts.data());
  } catch (const std::bad_alloc&) {
    enough_memory = false;
  }
  Py_END_ALLOW_THREADS;
  if (!enough_memory) return PyErr_NoMemory();
  std::vector<double> numbers;
  for (const adadecay::Moments& part : parts) {
    numbers.push_back(part.mean);
    numbers.push_back(part.root);
  }
  PyObject* out = PyList_New(0);
  if (out != nullptr && !append_all(out, numbers)) Py_CLEAR(out);
  return out;
}

// Calls a function that needs an empty list where it has nothing to give.
PyObject* with_empty_list(const char* name, Py_ssize_t wanted,
                          PyObject* (*function)(PyObject* const*, PyObject*),
                          PyObject* const* args, Py_ssize_t count) {
  if (count != wanted) {
    PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, not %zd", name, wanted, count);
    return nullptr;
  }
  PyObject* nothing = PyList_New(0);
  if (nothing == nullptr) return nullptr;
  PyObject* out = nullptr;
  try {
    out = function(args, nothing);
  } catch (const std::bad_alloc&) {
    out = PyErr_NoMemory();
  }
  Py_DECREF(nothing);
  return out;
}

PyObject* parts(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return with_empty_list("parts", 5, parts_of, args, count);
}

// Theta without statistics: θ = 2 / (1 + exp(-alpha |g|)).
adadecay::Theta bare_curve(double alpha) {
  adadecay::Theta theta;
  theta.form = adadecay::ThetaForm::centred;
  theta.slope = -alpha * 1.4426950408889634;
  return theta;
}

// θ of one tensor on its own: (grad, size, type, alpha, out) or, on request,
// of the bare curve. For tests.
PyObject* rates(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 6) {
    PyErr_Format(PyExc_TypeError, "rates takes 6 arguments, not %zd", count);
    return nullptr;
  }
  const char* grad = static_cast<const char*>(PyLong_AsVoidPtr(args[0]));
  const int64_t size = PyLong_AsLongLong(args[1]);
  const long type = PyLong_AsLong(args[2]);
  const double alpha = PyFloat_AsDouble(args[3]);
  char* out = static_cast<char*>(PyLong_AsVoidPtr(args[4]));
  const int bare = PyObject_IsTrue(args[5]);
  if (PyErr_Occurred()) return nullptr;
  if (type < 0 || type >= adadecay::kTypes || size < 1) {
    PyErr_SetString(PyExc_ValueError, "no such type, or nothing in the tensor");
    return nullptr;
  }
  const bool wide = type == static_cast<long>(adadecay::Type::f64);
  const adadecay::Tensor tensor = {
      nullptr, grad, nullptr, size, static_cast<adadecay::Type>(type), 0, false};
  double mean = 1.0;
  Py_BEGIN_ALLOW_THREADS;
  const adadecay::Theta theta =
      bare ? bare_curve(alpha) : adadecay::theta_of_tensor(*chosen, tensor, alpha);
  if (theta.form != adadecay::ThetaForm::one) {
    mean = chosen->rates[type](grad, size, theta, adadecay::Output::theta, out) /
           static_cast<double>(size);
  } else {
    for (int64_t i = 0; i < size; ++i) {
      if (wide) reinterpret_cast<double*>(out)[i] = 1.0;
      else reinterpret_cast<float*>(out)[i] = 1.0f;
    }
  }
  Py_END_ALLOW_THREADS;
  return PyFloat_FromDouble(mean);
}

PyCFunction fast(PyObject* (*function)(PyObject*, PyObject* const*, Py_ssize_t)) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)(void)>(function));
}

PyMethodDef* methods() {
  static PyMethodDef table[] = {
      {"step", fast(step), METH_FASTCALL,
       "One step in place; False, with nothing done, where tensors overlap."},
      {"parts", fast(parts), METH_FASTCALL,
       "What each tensor's layer sums up to, to be merged with other parts of it."},
      {"rates", fast(rates), METH_FASTCALL, "θ of one tensor, and its mean."},
      {"forms", forms, METH_NOARGS, "The forms this CPU can run, fastest first."},
      {"form", form, METH_NOARGS, "The form in use."},
      {"revision", revision, METH_NOARGS, "Raised whenever the kernel's bits change."},
      {"choose", choose, METH_O, "Use another form."},
      {nullptr, nullptr, 0, nullptr}};
  return table;
}

}  // namespace

PyMODINIT_FUNC PyInit__native() {
  for (int k = 0; chosen == nullptr && k < kIsas; ++k) chosen = isa_at(k);
  static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native",
                                   "The AdaDecay step for CPU tensors.", -1, methods(),
                                   nullptr, nullptr, nullptr, nullptr};
  return PyModule_Create(&definition);
}
