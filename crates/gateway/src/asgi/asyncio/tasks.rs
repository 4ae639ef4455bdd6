//! The Tasks of requests, and the reuse of one Task.
//!
//! Every request runs in a real `asyncio.Task`. Creating one takes longer than all other work for a short request. So
//! the Task of a request that never waits is reused for the next one, if no code can notice:
//!
//! * nothing refers to the Task, its context, its coroutine or its `__dict__`, and there is no weak reference to it;
//! * it has no done callbacks and no attributes, and was not cancelled;
//! * its context has the same variables, with identical values, as when it was created.
//!
//! It gets a new name for each request. Between requests it is parked ([`parking`](super::parking)), and
//! `asyncio.all_tasks` does not include it. If a condition is not met, the Task ends, and another request gets a new
//! one.
//!
//! A parked Task costs more than a plain one if its request does wait or leaves a trace in it. So after such a request
//! the next ones get plain Tasks: one at first, and twice as many each time.
//!
//! This relies on internals of CPython 3.12 to 3.15, whose source was read and tested. On these versions a parked Task
//! is tested once before the first request uses one ([`trial`](super::trial)). Every request has a new Task on other
//! versions, after a failed trial, in asyncio's debug mode, and on free-threaded builds.

use super::future::{Futures, LoopFuture};
use super::parking::RequestCoroutine;
use super::registry::{Registry, call};
use super::trial::{Candidate, Stepped, Trial};
use crate::asgi::concurrency::{FirstStep, TaskWaiter as _};
use crate::compat;
use crate::guarded::Guarded;
use crate::object::Object;
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use std::ptr;

/// The maximum number of consecutive plain Tasks before another Task is parked.
const PLAIN: u32 = 128;

/// The prefix of the names of Tasks. A number follows.
const NAME: &[u8] = b"Request-";

/// Creates the Tasks of requests.
pub(super) struct Tasks {
    event_loop: Object,
    /// Creates the futures for which Tasks wait.
    futures: Futures,
    /// The context that is copied for each Task.
    context: Object,
    maker: Maker,
    /// The number in the name of the next Task.
    number: Guarded<u64>,
}

enum Maker {
    /// A function `make_task(coroutine, context, name)`, for CPython before 3.12, where a Task cannot begin at once.
    Later(Py<PyAny>),
    /// The class of Tasks that begin at once, and the names of the arguments after the coroutine.
    AtOnce { class: Object, keywords: Object, reuse: Option<Box<Reuse>> },
}

/// The data that the reuse of a Task needs.
struct Reuse {
    registry: Registry,
    functions: Functions,
    /// The variables of the context and their values.
    variables: Vec<(Object, Object)>,
    state: Guarded<ReuseState>,
}

#[derive(Default)]
struct ReuseState {
    /// The result of the trial; `None` if it has not been run.
    works: Option<bool>,
    parked: Option<ParkedTask>,
    /// The number of plain Tasks until another Task is parked, and the initial value of that count.
    plain: u32,
    last_plain: u32,
}

struct Functions {
    set_name: Object,
    count_weak_references: Object,
    /// The descriptor of the attribute `_callbacks`, and its getter.
    callbacks: (Object, ffi::descrgetfunc),
}

/// A Task between two requests.
struct ParkedTask {
    task: Object,
    context: Object,
    attributes: Object,
    coroutine: Py<RequestCoroutine>,
    future: LoopFuture,
    name: Object,
    /// The reference counts of the task, its context, its attributes and its coroutine while nothing else refers to
    /// them.
    references: [isize; 4],
}

impl Tasks {
    /// Takes the parts from an object with the attributes `event_loop`, `context`, `task_class` and `make_task`.
    ///
    /// # Errors
    /// `AttributeError` for a missing attribute.
    pub(super) fn new(lent: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = lent.py();
        let event_loop = lent.getattr("event_loop")?;
        let context = lent.getattr("context")?;
        let make_task = lent.getattr("make_task")?;
        let maker = if make_task.is_none() {
            let class = lent.getattr("task_class")?;
            let keywords = ["loop", "eager_start", "context", "name"].map(|name| PyString::intern(py, name));
            // If something that reuse needs is missing, each request gets a new Task.
            let reuse =
                if can_reuse(&event_loop)? { Reuse::new(py, &class, &context).ok().map(Box::new) } else { None };
            let keywords = PyTuple::new(py, keywords)?.into_any().unbind().into();
            Maker::AtOnce { class: class.unbind().into(), keywords, reuse }
        } else {
            Maker::Later(make_task.unbind())
        };
        let futures = Futures::new(&event_loop)?;
        let (event_loop, context) = (event_loop.unbind().into(), context.unbind().into());
        Ok(Self { event_loop, futures, context, maker, number: Guarded::new(1) })
    }

    pub(super) fn futures(&self) -> &Futures {
        &self.futures
    }

    /// Begins a request: runs the first step of `coroutine` in a Task. `will_wait`: the request will wait, so a parked
    /// Task would not pay.
    pub(super) fn begin(&self, py: Python<'_>, coroutine: &Object, will_wait: bool) -> PyResult<FirstStep> {
        let number = self.number.with(py, |number| {
            *number += 1;
            *number - 1
        });
        match &self.maker {
            Maker::Later(make_task) => {
                let name = name(py, number)?;
                let task = make_task.call1(py, (coroutine.bind(py), self.copy_context(py)?.bind(py), name.bind(py)))?;
                Ok(FirstStep::Waiting(task))
            }
            Maker::AtOnce { class, keywords, reuse } => {
                if !will_wait
                    && let Some(reuse) = reuse
                    && let Some(parked) = reuse.take(py, &self.event_loop, || {
                        let made = ParkedTask::new(py, self, class, keywords, reuse)?;
                        made.hidden(py, &reuse.functions)
                    })
                {
                    match reuse.begin(py, self, parked, coroutine, number) {
                        Err(parked) => reuse.keep(py, parked),
                        Ok(begun) => return begun,
                    }
                }
                let context = self.copy_context(py)?;
                let task = self.make(py, class, keywords, coroutine, &context, &name(py, number)?)?.bind(py);
                if task.call_method0(intern!(py, "done"))?.is_truthy()? {
                    return Ok(FirstStep::Over(result_of(&task)));
                }
                Ok(FirstStep::Waiting(task.unbind()))
            }
        }
    }

    /// Ends the parked Task, because there are no more requests.
    pub(super) fn end(&self, py: Python<'_>) {
        if let Maker::AtOnce { reuse: Some(reuse), .. } = &self.maker
            && let Some(parked) = reuse.state.with(py, |state| state.parked.take())
        {
            parked.coroutine.get().end(Ok(py.None()));
            if let Err(error) = parked.future.wake_soon(py) {
                error.write_unraisable(py, None);
            }
        }
    }

    fn copy_context(&self, py: Python<'_>) -> PyResult<Object> {
        // SAFETY: Python has lent this object as a context; the thread is attached.
        unsafe { Object::from_new_or_error(py, compat::PyContext_Copy(self.context.as_ptr())) }
    }

    /// Creates a plain Task, which runs its first step.
    fn make(
        &self,
        py: Python<'_>,
        class: &Object,
        keywords: &Object,
        coroutine: &Object,
        context: &Object,
        name: &Object,
    ) -> PyResult<Object> {
        // SAFETY: the thread is attached; `True` is never freed.
        let is_eager = unsafe { ffi::Py_True() };
        let arguments =
            [ptr::null_mut(), coroutine.as_ptr(), self.event_loop.as_ptr(), is_eager, context.as_ptr(), name.as_ptr()];
        // SAFETY: all objects are live; the callee may use the slot before the arguments
        // (PY_VECTORCALL_ARGUMENTS_OFFSET); the names are a tuple with one name for each argument after the first.
        unsafe {
            let count = 1 | ffi::PY_VECTORCALL_ARGUMENTS_OFFSET;
            let task = ffi::PyObject_Vectorcall(class.as_ptr(), arguments.as_ptr().add(1), count, keywords.as_ptr());
            Object::from_new_or_error(py, task)
        }
    }
}

impl Functions {
    /// Returns true if the Task has done callbacks, or if that cannot be determined.
    fn has_callbacks(&self, _py: Python<'_>, task: &Object) -> bool {
        let (descriptor, get) = &self.callbacks;
        // SAFETY: the getter is that of the descriptor's type; both objects are live, and so is the Task's type; the
        // thread is attached. The result is a new reference, or null with an exception set.
        unsafe {
            let kind = ffi::Py_TYPE(task.as_ptr()).cast();
            let callbacks = Object::from_new(get(descriptor.as_ptr(), task.as_ptr(), kind));
            if callbacks.is_none() {
                ffi::PyErr_Clear();
            }
            callbacks.is_none_or(|callbacks| callbacks.as_ptr() != ffi::Py_None())
        }
    }
}

/// Returns true if there are weak references to the Task, as `weakref.getweakrefcount` counts them.
fn has_weak_references(_py: Python<'_>, task: &Object) -> bool {
    let task = task.as_ptr();
    // SAFETY: the object is live. The head of its list of weak references is at the offset that its type gives
    // (`PyTypeObject`, `tp_weaklistoffset`), or there is no such list and the offset is 0.
    unsafe {
        let offset = (*ffi::Py_TYPE(task)).tp_weaklistoffset;
        offset == 0 || !(*task.byte_offset(offset).cast::<*mut ffi::PyObject>()).is_null()
    }
}

/// Returns a descriptor together with the getter of its type.
fn descriptor(descriptor: &Bound<'_, PyAny>) -> PyResult<(Object, ffi::descrgetfunc)> {
    // SAFETY: the object is live, and so is its type.
    let get = unsafe { (*ffi::Py_TYPE(descriptor.as_ptr())).tp_descr_get };
    let get = get.ok_or_else(|| PyTypeError::new_err("a Task's callbacks are no attribute that is computed"))?;
    Ok((descriptor.clone().unbind().into(), get))
}

/// Returns true if Tasks can be reused on this interpreter; see the module.
fn can_reuse(event_loop: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = event_loop.py();
    let version = py.version_info();
    let is_known = (3, 12) <= (version.major, version.minor) && (version.major, version.minor) <= (3, 15);
    Ok(is_known && compat::COUNTS_REFERENCES && !event_loop.call_method0("get_debug")?.is_truthy()?)
}

impl Reuse {
    fn new(py: Python<'_>, class: &Bound<'_, PyAny>, context: &Bound<'_, PyAny>) -> PyResult<Self> {
        let asyncio = py.import("_asyncio")?;
        if !class.is(&asyncio.getattr("Task")?) {
            return Err(PyRuntimeError::new_err("the class of Tasks is not that of the C implementation"));
        }
        let functions = Functions {
            set_name: class.getattr("set_name")?.unbind().into(),
            count_weak_references: py.import("_weakref")?.getattr("getweakrefcount")?.unbind().into(),
            callbacks: descriptor(&class.getattr("_callbacks")?)?,
        };
        let mut variables = Vec::new();
        for item in context.call_method0("items")?.try_iter()? {
            let (variable, value) = item?.extract::<(Py<PyAny>, Py<PyAny>)>()?;
            variables.push((variable.into(), value.into()));
        }
        Ok(Self {
            registry: Registry::new(&asyncio)?,
            functions,
            variables,
            state: Guarded::new(ReuseState::default()),
        })
    }

    /// Returns the parked Task, or else a new one. Returns `None` if the next Task must be plain, if no Task can be
    /// made, or if the trial has failed.
    fn take(&self, py: Python<'_>, event_loop: &Object, make: impl Fn() -> PyResult<ParkedTask>) -> Option<ParkedTask> {
        let (parked, is_plain, works) = self.state.with(py, |state| {
            let is_plain = state.plain > 0 || state.works == Some(false);
            state.plain = state.plain.saturating_sub(1);
            (if is_plain { None } else { state.parked.take() }, is_plain, state.works)
        });
        if is_plain {
            return None;
        }
        if works.is_none() {
            // The trial cannot run while another Task is current, as within a step of a request.
            let made = || make().map(|parked| Tried { reuse: self, event_loop, parked });
            let works = Trial::new(py, event_loop).and_then(|trial| trial.run(py, made)).unwrap_or(Some(false))?;
            self.state.with(py, |state| state.works = Some(works));
            if !works {
                return None;
            }
        }
        // A parked Task that was cancelled ends by itself.
        let parked = parked.filter(|parked| !parked.future.is_cancelled(py));
        parked.or_else(|| {
            let made = make();
            if made.is_err() {
                self.state.with(py, |state| state.plain = PLAIN);
            }
            made.ok()
        })
    }

    fn keep(&self, py: Python<'_>, parked: ParkedTask) {
        let surplus = self.state.with(py, |state| state.parked.replace(parked));
        // There is a second Task if a request has run within a step of another one.
        if let Some(surplus) = surplus
            && let Err(error) = surplus.end(py, Ok(py.None()))
        {
            error.write_unraisable(py, None);
        }
    }

    /// Runs the first step of `coroutine` with a parked Task. Returns the Task as `Err` if the step did not begin
    /// because another Task is current.
    fn begin(
        &self,
        py: Python<'_>,
        tasks: &Tasks,
        mut parked: ParkedTask,
        coroutine: &Object,
        number: u64,
    ) -> Result<PyResult<FirstStep>, ParkedTask> {
        let named = parked.rename(py, &self.functions, number);
        let step = || {
            parked.future.hold(py, true);
            parked.coroutine.get().begin(coroutine.bind(py).unbind());
            let mut result = ptr::null_mut();
            // SAFETY: the thread is attached and the objects are live; a result is a new reference, and with
            // PYGEN_ERROR an exception is set.
            unsafe {
                let status = compat::PyIter_Send(coroutine.as_ptr(), ffi::Py_None(), &raw mut result);
                (status, Bound::from_owned_ptr_or_err(py, result).map(Bound::unbind))
            }
        };
        let Some(((status, result), is_sound)) =
            named.ok().and_then(|()| self.step(py, &tasks.event_loop, &parked, step))
        else {
            return Err(parked);
        };
        let task = &parked.task;
        let begun = match result {
            Ok(awaited) if status == ffi::PySendResult::PYGEN_NEXT => {
                self.note_plain(py);
                let registered = self.registry.register(py, task);
                parked.coroutine.get().wait(coroutine.bind(py).unbind(), awaited);
                registered.and_then(|()| parked.resume(py)).map(|()| Some(FirstStep::Waiting(task.bind(py).unbind())))
            }
            result => {
                parked.coroutine.get().clear();
                parked.future.hold(py, false);
                if is_sound && result.is_ok() && self.is_untouched(py, &parked) {
                    Ok(None)
                } else {
                    self.note_plain(py);
                    parked.end(py, result).map(|()| Some(FirstStep::Over(result_of(&task.bind(py)))))
                }
            }
        };
        parked.leave_context(py);
        Ok(match begun {
            Ok(None) => {
                self.state.with(py, |state| state.last_plain = 0);
                self.keep(py, parked);
                Ok(FirstStep::Over(Ok(())))
            }
            Ok(Some(begun)) => Ok(begun),
            Err(error) => Err(error),
        })
    }

    /// Calls `act` as a step of a parked Task: the Task is the current one, `asyncio.all_tasks` includes it, and its
    /// context is entered. Returns the result of `act`, and true if all of that could be done and undone. The context
    /// stays entered, so the caller must call [`ParkedTask::leave_context`]. Returns `None`, without calling `act` or
    /// entering the context, if another Task is current.
    fn step<T>(
        &self,
        py: Python<'_>,
        event_loop: &Object,
        parked: &ParkedTask,
        act: impl FnOnce() -> T,
    ) -> Option<(T, bool)> {
        let task = &parked.task;
        if !self.registry.enter(py, event_loop, task) {
            return None;
        }
        let mut is_sound = self.registry.show(py, task);
        // SAFETY: the thread is attached, and the context is live.
        is_sound &= unsafe { compat::PyContext_Enter(parked.context.as_ptr()) } == 0;
        let result = act();
        is_sound &= self.registry.hide(py, task);
        is_sound &= self.registry.leave(py, event_loop, task);
        Some((result, is_sound))
    }

    /// Makes the next requests use plain Tasks.
    fn note_plain(&self, py: Python<'_>) {
        self.state.with(py, |state| {
            state.last_plain = (state.last_plain * 2).clamp(1, PLAIN);
            state.plain = state.last_plain;
        });
    }

    /// Returns true if no code can distinguish this Task from a new one. Its context must still be entered.
    fn is_untouched(&self, py: Python<'_>, parked: &ParkedTask) -> bool {
        let ParkedTask { task, context, attributes, .. } = parked;
        let [of_task, of_context, of_attributes, of_coroutine] = parked.references;
        // The thread holds one more reference to the entered context.
        parked.count_references() == [of_task, of_context + 1, of_attributes, of_coroutine]
            && !parked.future.is_cancelled(py)
            && attributes.dict_size(py) == 0
            && !self.functions.has_callbacks(py, task)
            && !has_weak_references(py, task)
            && self.has_same_variables(py, context)
    }

    fn has_same_variables(&self, py: Python<'_>, context: &Object) -> bool {
        // SAFETY: the objects are live and the thread is attached. Looking up a context variable compares only
        // addresses, so no Python code runs.
        unsafe {
            if ffi::PyObject_Size(context.as_ptr()) != self.variables.len().cast_signed() {
                return false;
            }
            self.variables.iter().all(|(variable, value)| {
                let found = Object::from_new(ffi::PyObject_GetItem(context.as_ptr(), variable.as_ptr()));
                if found.is_none() {
                    ffi::PyErr_Clear();
                }
                found.is_some_and(|found| {
                    let is_same = found.as_ptr() == value.as_ptr();
                    found.release(py);
                    is_same
                })
            })
        }
    }
}

/// A Task under trial.
struct Tried<'a> {
    reuse: &'a Reuse,
    event_loop: &'a Object,
    parked: ParkedTask,
}

impl Candidate for Tried<'_> {
    fn task(&self) -> &Object {
        &self.parked.task
    }

    fn name(&self) -> &Object {
        &self.parked.name
    }

    fn step(&self, py: Python<'_>, act: impl FnOnce() -> PyResult<bool>) -> PyResult<Stepped> {
        let stepped = self.reuse.step(py, self.event_loop, &self.parked, act);
        let Some((result, is_sound)) = stepped else { return Err(PyRuntimeError::new_err("another Task is current")) };
        let is_untouched = self.reuse.is_untouched(py, &self.parked);
        self.parked.leave_context(py);
        Ok(Stepped { is_right: result? && is_sound, is_untouched })
    }

    fn hold(&self, py: Python<'_>, is_held: bool) {
        self.parked.future.hold(py, is_held);
    }

    fn end(&self, py: Python<'_>, value: Py<PyAny>) -> PyResult<()> {
        let stepped = self.reuse.step(py, self.event_loop, &self.parked, || ());
        let Some(((), _)) = stepped else { return Err(PyRuntimeError::new_err("another Task is current")) };
        let ended = self.parked.end(py, Ok(value));
        self.parked.leave_context(py);
        ended
    }
}

impl ParkedTask {
    fn new(py: Python<'_>, tasks: &Tasks, class: &Object, keywords: &Object, reuse: &Reuse) -> PyResult<Self> {
        let context = tasks.copy_context(py)?;
        let future = tasks.futures.make(py)?;
        let coroutine = Py::new(py, RequestCoroutine::new(py, &future))?;
        let object = Object::from(coroutine.clone_ref(py).into_any());
        let name = name(py, 0)?;
        let task = tasks.make(py, class, keywords, &object, &context, &name)?;
        if !future.is_awaited(py) {
            return Err(PyRuntimeError::new_err(
                "the Task does not wait for the future that its coroutine has yielded",
            ));
        }
        drop(object);
        reuse.registry.unregister(py, &task)?;
        // SAFETY: the object is live and the thread is attached.
        let attributes = unsafe {
            let attributes = ffi::PyObject_GenericGetDict(task.as_ptr(), ptr::null_mut());
            Object::from_new_or_error(py, attributes)
        }?;
        if !attributes.bind(py).is_exact_instance_of::<PyDict>() {
            return Err(PyRuntimeError::new_err("a Task has no dict"));
        }
        Ok(Self { task, context, attributes, coroutine, future, name, references: [0; 4] })
    }

    /// Counts the references that exist while the Task is parked and unused.
    fn hidden(mut self, py: Python<'_>, functions: &Functions) -> PyResult<Self> {
        let count = call(py, &functions.count_weak_references, [&self.task])?.bind(py).extract::<usize>()?;
        if count != 0 {
            return Err(PyRuntimeError::new_err("a Task that asyncio does not know has weak references"));
        }
        self.references = self.count_references();
        Ok(self)
    }

    /// Gives the Task the name for another request.
    fn rename(&mut self, py: Python<'_>, functions: &Functions, number: u64) -> PyResult<()> {
        let mut buffer = [0; NAME_LENGTH];
        let text = text_of_name(&mut buffer, number);
        // SAFETY: with a GIL no other code uses the string meanwhile, and only the Task and this structure hold
        // references.
        if unsafe { rewrite(&self.name, 2, text) } {
            return Ok(());
        }
        self.name = Object::latin1(py, text).ok_or_else(|| PyErr::fetch(py))?;
        call(py, &functions.set_name, [&self.task, &self.name]).map(drop)
    }

    fn count_references(&self) -> [isize; 4] {
        let objects = [self.task.as_ptr(), self.context.as_ptr(), self.attributes.as_ptr(), self.coroutine.as_ptr()];
        // SAFETY: the objects are live, and with a GIL nothing changes their counts meanwhile.
        objects.map(|object| unsafe { ffi::Py_REFCNT(object) })
    }

    /// Leaves the context that [`Reuse::step`] has entered.
    fn leave_context(&self, py: Python<'_>) {
        // SAFETY: the thread is attached and the context is live; if this thread has not entered it, the call fails.
        if unsafe { compat::PyContext_Exit(self.context.as_ptr()) } != 0 {
            PyErr::fetch(py).write_unraisable(py, None);
        }
    }

    fn resume(&self, py: Python<'_>) -> PyResult<()> {
        self.future.resume(py)
    }

    /// Ends the Task with `result`. Its context must be entered, and no Task may be current.
    fn end(&self, py: Python<'_>, result: PyResult<Py<PyAny>>) -> PyResult<()> {
        self.coroutine.get().end(result);
        self.resume(py)
    }
}

/// The maximum length of a name: a u64 has at most 20 digits.
const NAME_LENGTH: usize = NAME.len() + 20;

/// Returns a name that no other Task has.
fn name(py: Python<'_>, number: u64) -> PyResult<Object> {
    let mut buffer = [0; NAME_LENGTH];
    Object::latin1(py, text_of_name(&mut buffer, number)).ok_or_else(|| PyErr::fetch(py))
}

fn text_of_name(buffer: &mut [u8; NAME_LENGTH], number: u64) -> &[u8] {
    let (mut start, mut rest) = (buffer.len(), number);
    loop {
        start -= 1;
        buffer[start] = b'0' + u8::try_from(rest % 10).unwrap_or_default();
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    start -= NAME.len();
    buffer[start..start + NAME.len()].copy_from_slice(NAME);
    &buffer[start..]
}

/// Replaces the text of an ASCII str by another of the same length, if no code can have kept the str. That is so if
/// there are only `references` references and its hash was never computed, so it is neither in a dict nor interned.
/// Returns false if the str was left unchanged.
///
/// # Safety
/// The thread is attached, the str is ASCII, and each of the references belongs to the caller or to an object that only
/// displays the str.
unsafe fn rewrite(string: &Object, references: isize, text: &[u8]) -> bool {
    let object = string.as_ptr();
    // SAFETY: the object is a live str. The text of an ASCII str follows its head.
    unsafe {
        let head = object.cast::<ffi::PyASCIIObject>();
        if ffi::Py_REFCNT(object) != references
            || (*head).hash != -1
            || (*head).length != text.len().cast_signed()
            || !text.is_ascii()
        {
            return false;
        }
        ptr::copy_nonoverlapping(text.as_ptr(), head.add(1).cast::<u8>(), text.len());
    }
    true
}

/// Returns the result of a Task that is done.
pub(super) fn result_of(task: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = task.py();
    // If the Task was cancelled, this call raises the CancelledError.
    let error = task.call_method0(intern!(py, "exception"))?;
    if !error.is_none() {
        return Err(PyErr::from_value(error));
    }
    Ok(())
}
