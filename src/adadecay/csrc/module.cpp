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
#include <string>
#include <vector>

#include "isa.hpp"
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

struct PythonError {};  // thrown where Python's own error is set

void check(bool ok) { if (!ok) throw PythonError(); }

void read(PyObject* from, int64_t& to) {
  to = PyLong_AsLongLong(from);
  check(to != -1 || !PyErr_Occurred());
}

void read(PyObject* from, double& to) {
  to = PyFloat_AsDouble(from);
  check(to != -1.0 || !PyErr_Occurred());
}

void read(PyObject* from, bool& to) {
  const int truth = PyObject_IsTrue(from);
  check(truth >= 0);
  to = truth == 1;
}

void read(PyObject* from, PyObject*& to) { to = from; }  // borrowed

// Size, type, and the addresses of parameter and buffer.
void read(PyObject* from, Tensor& to) {
  long long size, param, buffer;
  int type;
  check(PyArg_ParseTuple(from, "LiLL", &size, &type, &param, &buffer));
  if (type < 0 || type >= kTypes || size < 0) {
    PyErr_Format(PyExc_ValueError, "a tensor has type %d and size %lld", type, size);
    throw PythonError();
  }
  to = {reinterpret_cast<char*>(param), nullptr, reinterpret_cast<char*>(buffer), size,
        static_cast<Type>(type), false};
}

template <class T>
void read(PyObject* from, std::vector<T>& to) {
  if (!PyList_Check(from)) {
    PyErr_SetString(PyExc_TypeError, "the kernel takes only lists");
    throw PythonError();
  }
  to.resize(PyList_Size(from));
  for (size_t i = 0; i < to.size(); ++i) read(PyList_GetItem(from, i), to[i]);
}

void read(PyObject* from, const Plan*& to) {
  to = static_cast<const Plan*>(PyCapsule_GetPointer(from, kPlanName));
  check(to != nullptr);
}

// Names and where to put their values, in turn.
void read_named(PyObject*) {}

template <class T, class... Others>
void read_named(PyObject* from, const char* name, T& to, Others&&... others) {
  const std::unique_ptr<PyObject, decltype(&Py_DecRef)> value(
      PyMapping_GetItemString(from, name), Py_DecRef);
  check(value != nullptr);
  read(value.get(), to);
  read_named(from, others...);
}

PyObject* plan(PyObject* arguments) {
  std::vector<Tensor> tensors;
  std::vector<Integers> members;
  bool momentum;
  read_named(arguments, "tensors", tensors, "members", members, "momentum", momentum);
  auto made = std::make_unique<Plan>(tensors, members, momentum);
  PyObject* capsule = PyCapsule_New(made.get(), kPlanName, [](PyObject* dying) {
    delete static_cast<Plan*>(PyCapsule_GetPointer(dying, kPlanName));
  });
  if (capsule != nullptr) made.release();
  return capsule;
}

PyObject* fits(PyObject* arguments) {
  const Plan* plan;
  Integers grads;
  read_named(arguments, "plan", plan, "grads", grads);
  return PyBool_FromLong(plan->fits(plan->with(grads, {})));
}

PyObject* step(PyObject* arguments) {
  const Plan* plan;
  PyObject* given;
  Options options;
  Update& update = options.update;
  Integers grads, first, rounding;
  int64_t moments;
  read_named(arguments, "plan", plan, "grads", grads, "first", first, "moments", moments,
             "rounding", rounding, "threads", options.threads, "options", given);
  read_named(given, "lr", update.lr, "momentum", update.momentum, "dampening",
             update.dampening, "weight_decay", update.weight_decay, "nesterov",
             update.nesterov, "maximize", update.maximize, "decoupled", update.decoupled,
             "alpha", options.alpha, "unit_mean", options.unit_mean);
  if (plan->momentum != (update.momentum != 0.0)) {
    PyErr_SetString(PyExc_ValueError,
                    "the plan must have buffers if there is momentum, else none");
    return nullptr;
  }
  const std::vector<Tensor> tensors = plan->with(grads, first, rounding);
  if (!plan->fits(tensors)) Py_RETURN_FALSE;
  {
    const WithoutGil released;
    take_step(*chosen, *plan, tensors, options, reinterpret_cast<Moments*>(moments));
  }
  Py_RETURN_TRUE;
}

PyObject* scale(PyObject* arguments) {
  const Plan* plan;
  double factor;
  Options options = {};
  read_named(arguments, "plan", plan, "factor", factor, "threads", options.threads);
  if (plan->overlaps) Py_RETURN_FALSE;
  {
    const WithoutGil released;
    options.factor = &factor;
    take_step(*chosen, *plan, plan->tensors, options, nullptr);
  }
  Py_RETURN_TRUE;
}

PyObject* moments(PyObject* arguments) {
  const Plan* plan;
  Integers grads;
  int64_t threads, out;
  read_named(arguments, "plan", plan, "grads", grads, "threads", threads, "out", out);
  const std::vector<Tensor> tensors = plan->with(grads, {});
  {
    const WithoutGil released;
    compute_moments(*chosen, *plan, tensors, threads, reinterpret_cast<Moments*>(out));
  }
  Py_RETURN_NONE;
}

PyObject* rates(PyObject* arguments) {
  Tensor tensor;
  int64_t grad, moments, out;
  double alpha, total;
  read_named(arguments, "tensor", tensor, "grad", grad, "alpha", alpha, "moments",
             moments, "out", out);
  tensor.grad = reinterpret_cast<const char*>(grad);
  {
    const WithoutGil released;
    const Moments* known = reinterpret_cast<const Moments*>(moments);
    const Theta theta = known ? theta_of(*known, alpha, tensor.type == Type::f64)
                              : theta_of_tensor(*chosen, tensor, alpha);
    const auto rates = chosen->of(tensor.type).rates;
    total = rates(tensor.grad, tensor.size, theta, true, reinterpret_cast<void*>(out));
  }
  return PyFloat_FromDouble(total / static_cast<double>(tensor.size));
}

PyObject* forms(PyObject*, PyObject*) {
  std::string names;
  for (const Isa* isa : available_isas()) names += std::string(isa->name) + " ";
  PyObject* text = PyUnicode_FromString(names.c_str());
  PyObject* list = text == nullptr ? nullptr : PyUnicode_Split(text, nullptr, -1);
  Py_XDECREF(text);
  return list;
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

// A method with named arguments only, whose exceptions become Python's.
template <PyObject* (*kFunction)(PyObject*)>
PyMethodDef method(const char* name, const char* doc) {
  PyCFunctionWithKeywords call = [](PyObject*, PyObject*, PyObject* arguments) {
    try {
      return kFunction(arguments);
    } catch (const PythonError&) {
      return static_cast<PyObject*>(nullptr);
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
      method<scale>("scale", "Parameters times a factor; False if some overlap."),
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
