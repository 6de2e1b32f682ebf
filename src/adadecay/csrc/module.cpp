// The Python module adadecay.kernels._native, in the limited API of Python 3.11, so that
// one build serves every later Python. Tensors come as addresses, sizes and type numbers
// in plain lists: no torch header, no torch at build time. The caller keeps the tensors
// alive, and has checked that they lie in memory without gaps.
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <vector>

#include "isa.hpp"
#include "statistics.hpp"
#include "step.hpp"

namespace {

using namespace adadecay;
using Integers = std::vector<int64_t>;

const Isa* chosen = nullptr;
constexpr char kPlanName[] = "adadecay.Plan";

// Other Python threads may run while one of these exists.
struct WithoutGil {
  PyThreadState* state = PyEval_SaveThread();
  ~WithoutGil() { PyEval_RestoreThread(state); }
};

// Each `read` returns false with a Python error set where the object is of no use.
bool read(PyObject* from, int64_t& to) {
  to = PyLong_AsLongLong(from);
  return to != -1 || !PyErr_Occurred();
}

bool read(PyObject* from, double& to) {
  to = PyFloat_AsDouble(from);
  return to != -1.0 || !PyErr_Occurred();
}

bool read(PyObject* from, bool& to) {
  const int truth = PyObject_IsTrue(from);
  to = truth == 1;
  return truth >= 0;
}

// Size, type, and the addresses of parameter and buffer.
bool read(PyObject* from, Tensor& to) {
  long long size, param, buffer;
  int type;
  if (!PyArg_ParseTuple(from, "LiLL", &size, &type, &param, &buffer)) return false;
  if (type < 0 || type >= kTypes || size < 0) {
    PyErr_Format(PyExc_ValueError, "a tensor has type %d and size %lld", type, size);
    return false;
  }
  to = {reinterpret_cast<char*>(param), nullptr, reinterpret_cast<char*>(buffer), size,
        static_cast<Type>(type), false};
  return true;
}

template <class T>
bool read(PyObject* from, std::vector<T>& to) {
  if (!PyList_Check(from)) {
    PyErr_SetString(PyExc_TypeError, "the kernel takes only lists");
    return false;
  }
  to.resize(PyList_Size(from));
  for (size_t i = 0; i < to.size(); ++i) {
    if (!read(PyList_GetItem(from, i), to[i])) return false;
  }
  return true;
}

bool read(PyObject* from, const Plan*& to) {
  to = static_cast<const Plan*>(PyCapsule_GetPointer(from, kPlanName));
  return to != nullptr;
}

// For the format O& of PyArg_ParseTupleAndKeywords.
template <class T>
int into(PyObject* from, void* to) {
  try {
    return read(from, *static_cast<T*>(to));
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
    return 0;
  }
}

template <class... Targets>
bool parse(PyObject* args, PyObject* names, const char* format, const char* const* keys,
           Targets... targets) {
  return PyArg_ParseTupleAndKeywords(args, names, format, const_cast<char**>(keys),
                                     targets...);
}

PyObject* plan(PyObject* args, PyObject* names) {
  static const char* const keys[] = {"tensors", "members", "momentum", nullptr};
  std::vector<Tensor> tensors;
  std::vector<Integers> members;
  int momentum;
  if (!parse(args, names, "O&O&p", keys, into<std::vector<Tensor>>, &tensors,
             into<std::vector<Integers>>, &members, &momentum)) {
    return nullptr;
  }
  auto made = std::make_unique<Plan>(tensors, members, momentum != 0);
  PyObject* capsule = PyCapsule_New(made.get(), kPlanName, [](PyObject* dying) {
    delete static_cast<Plan*>(PyCapsule_GetPointer(dying, kPlanName));
  });
  if (capsule != nullptr) made.release();
  return capsule;
}

template <class T>
bool read_option(PyObject* options, const char* name, T& to) {
  PyObject* value = PyMapping_GetItemString(options, name);
  const bool ok = value != nullptr && read(value, to);
  Py_XDECREF(value);
  return ok;
}

bool read_options(PyObject* from, Options& to) {
  Update& update = to.update;
  return read_option(from, "lr", update.lr) &&
         read_option(from, "momentum", update.momentum) &&
         read_option(from, "dampening", update.dampening) &&
         read_option(from, "weight_decay", update.weight_decay) &&
         read_option(from, "nesterov", update.nesterov) &&
         read_option(from, "maximize", update.maximize) &&
         read_option(from, "decoupled", update.decoupled) &&
         read_option(from, "alpha", to.alpha) &&
         read_option(from, "unit_mean", to.unit_mean);
}

PyObject* fits(PyObject* args, PyObject* names) {
  static const char* const keys[] = {"plan", "grads", nullptr};
  const Plan* plan;
  Integers grads;
  if (!parse(args, names, "O&O&", keys, into<const Plan*>, &plan, into<Integers>,
             &grads)) {
    return nullptr;
  }
  return PyBool_FromLong(plan->fits(plan->with(grads, {})));
}

PyObject* step(PyObject* args, PyObject* names) {
  static const char* const keys[] = {"plan",  "grads",   "options", "threads",
                                     "first", "moments", "rounding", nullptr};
  const Plan* plan;
  PyObject* mapping;
  Options options;
  Integers grads, first, rounding;
  std::vector<double> numbers;
  if (!parse(args, names, "O&O&Oi|O&O&O&", keys, into<const Plan*>, &plan,
             into<Integers>, &grads, &mapping, &options.threads, into<Integers>, &first,
             into<std::vector<double>>, &numbers, into<Integers>, &rounding) ||
      !read_options(mapping, options)) {
    return nullptr;
  }
  if (plan->momentum != (options.update.momentum != 0.0)) {
    PyErr_SetString(PyExc_ValueError,
                    "the plan must have buffers if there is momentum, else none");
    return nullptr;
  }
  const std::vector<Tensor> tensors = plan->with(grads, first, rounding);
  std::vector<Moments> known;
  for (size_t l = 0; !numbers.empty() && l < plan->layers.size(); ++l) {
    const double mean_rate = numbers.at(4 * l + 3);  // first: a short list throws here
    const double* row = &numbers[4 * l];
    known.push_back({row[0], row[1], row[2], mean_rate});
  }
  if (!plan->fits(tensors)) Py_RETURN_FALSE;
  {
    const WithoutGil released;
    take_step(*chosen, *plan, tensors, options, known.empty() ? nullptr : known.data());
  }
  Py_RETURN_TRUE;
}

PyObject* moments(PyObject* args, PyObject* names) {
  static const char* const keys[] = {"plan", "grads", "threads", nullptr};
  const Plan* plan;
  Integers grads;
  int threads;
  if (!parse(args, names, "O&O&i", keys, into<const Plan*>, &plan, into<Integers>,
             &grads, &threads)) {
    return nullptr;
  }
  const std::vector<Tensor> tensors = plan->with(grads, {});
  std::vector<Moments> found;
  {
    const WithoutGil released;
    found = compute_moments(*chosen, *plan, tensors, threads);
  }
  PyObject* rows = PyList_New(0);
  for (const Moments& m : found) {
    PyObject* row = Py_BuildValue("(ddd)", m.count, m.mean, m.deviation);
    if (row == nullptr || PyList_Append(rows, row) != 0) Py_CLEAR(rows);
    Py_XDECREF(row);
    if (rows == nullptr) break;
  }
  return rows;
}

PyObject* rates(PyObject* args, PyObject* names) {
  static const char* const keys[] = {"grad", "size", "type",   "alpha",
                                     "out",  "mean", "deviation", nullptr};
  int64_t grad, size, out;
  int type;
  double alpha, mean = 0.0, deviation = 0.0;
  if (!parse(args, names, "LLidL|$dd", keys, &grad, &size, &type, &alpha, &out, &mean,
             &deviation)) {
    return nullptr;
  }
  if (type < 0 || type >= kTypes || size < 1) {
    PyErr_SetString(PyExc_ValueError, "no such type, or nothing in the tensor");
    return nullptr;
  }
  const Tensor tensor = {nullptr, reinterpret_cast<const char*>(grad), nullptr, size,
                         static_cast<Type>(type), false};
  double mean_rate;
  {
    const WithoutGil released;
    const Theta theta =
        deviation > 0.0 ? theta_of({1.0, mean, deviation, 1.0}, alpha, tensor.type == Type::f64)
                        : theta_of_tensor(*chosen, tensor, alpha);
    mean_rate = chosen->rates[type](tensor.grad, size, theta, Output::theta,
                                    reinterpret_cast<char*>(out)) /
                static_cast<double>(size);
  }
  return PyFloat_FromDouble(mean_rate);
}

PyObject* forms(PyObject*, PyObject*) {
  PyObject* names = PyList_New(0);
  for (const Isa* isa : available_isas()) {
    PyObject* name = PyUnicode_FromString(isa->name);
    if (name == nullptr || PyList_Append(names, name) != 0) Py_CLEAR(names);
    Py_XDECREF(name);
    if (names == nullptr) break;
  }
  return names;
}

PyObject* form(PyObject*, PyObject*) { return PyUnicode_FromString(chosen->name); }

PyObject* revision(PyObject*, PyObject*) { return PyLong_FromLong(kRevision); }

PyObject* choose(PyObject*, PyObject* argument) {
  const char* name = PyUnicode_AsUTF8AndSize(argument, nullptr);
  if (name == nullptr) return nullptr;
  for (const Isa* isa : available_isas()) {
    if (std::strcmp(isa->name, name) != 0) continue;
    chosen = isa;
    Py_RETURN_NONE;
  }
  PyErr_Format(PyExc_ValueError, "this CPU or build has no kernel form named '%s'",
               name);
  return nullptr;
}

// A method with named arguments, whose exceptions become Python's.
template <PyObject* (*kFunction)(PyObject*, PyObject*)>
PyMethodDef method(const char* name, const char* doc) {
  PyCFunctionWithKeywords call = [](PyObject*, PyObject* args, PyObject* names) {
    try {
      return kFunction(args, names);
    } catch (const std::bad_alloc&) {
      return PyErr_NoMemory();
    } catch (const std::out_of_range&) {
      PyErr_SetString(PyExc_IndexError, "a list is too short, or an index too large");
      return static_cast<PyObject*>(nullptr);
    }
  };
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call)),
          METH_VARARGS | METH_KEYWORDS, doc};
}

PyMethodDef* methods() {
  static PyMethodDef table[] = {
      method<plan>("plan", "What stays the same from step to step."),
      method<fits>("fits", "Whether no memory that a step writes has another name."),
      method<step>("step", "One step in place; False, with nothing done, if not fits."),
      method<moments>("moments", "Count, mean and deviation of |g| of each layer."),
      method<rates>("rates", "θ of one tensor, by its own moments or others; its mean."),
      {"forms", forms, METH_NOARGS, "The forms this CPU can run, fastest first."},
      {"form", form, METH_NOARGS, "The form in use."},
      {"revision", revision, METH_NOARGS, "Raised whenever the kernel's bits change."},
      {"choose", choose, METH_O, "Use another form."},
      {nullptr, nullptr, 0, nullptr}};
  return table;
}

}  // namespace

PyMODINIT_FUNC PyInit__native() {
  chosen = available_isas().front();
  static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native",
                                   "The AdaDecay step for CPU tensors.", -1, methods(),
                                   nullptr, nullptr, nullptr, nullptr};
  return PyModule_Create(&definition);
}
