//! A log: a bounded queue of lines, and the thread that writes them. Uses no Python.

use super::ending;
use super::target::Target;
use crate::text::rfc3339;
use engine::Waker;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The maximum number of bytes in the queue. That is about 10,000 lines, enough for a reader that pauses for a moment.
const CAPACITY: usize = 1 << 20;
/// The time for which the writer thread collects lines between two writes, to save system calls on a busy server.
const COLLECT: Duration = Duration::from_millis(5);
/// The writer thread ends after this time without a line.
const LINGER: Duration = Duration::from_secs(2);
/// A log that has accepted nothing for the time `STUCK` is waited for only for the time `MOMENT`.
const STUCK: Duration = Duration::from_millis(500);
const MOMENT: Duration = Duration::from_millis(100);
/// The minimum time between two reports of dropped lines. The first is reported at once.
const INTERVAL: Duration = Duration::from_secs(10);
/// The kernel writes up to this many bytes to a pipe without mixing them with other writes (POSIX). It is 4096 on
/// Linux.
const PIPE_BUF: usize = libc::PIPE_BUF;

/// The maximum number of notices that are kept until they are taken.
const NOTICES: usize = 8;

/// The number of lines that this process has dropped.
pub(super) static DROPPED: AtomicU64 = AtomicU64::new(0);
/// All logs of this process that have not been dropped.
pub(super) static ALL: Mutex<Vec<Weak<Log>>> = Mutex::new(Vec::new());

/// Returns the number of lines that this process has dropped.
pub(crate) fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// Queued lines for one target.
struct Segment {
    target: Arc<Target>,
    bytes: Vec<u8>,
    /// The offsets in `bytes` at which appends end. Bytes that were appended together are written to a pipe in one
    /// piece, if they fit into `PIPE_BUF`.
    ends: VecDeque<usize>,
}

/// The lines dropped since the last report of dropped lines.
#[derive(Default)]
struct Loss {
    lines: u64,
    /// The time of the first drop; `None` while lines are accepted.
    since: Option<Instant>,
    /// The error of a write; `None` if the queue was full because writes block.
    error: Option<io::Error>,
    /// The times of the last notices: of lines being dropped, and of lines being accepted again.
    reported: Option<Instant>,
    recovered: Option<Instant>,
}

fn is_due(last: Option<Instant>) -> bool {
    last.is_none_or(|last| last.elapsed() >= INTERVAL)
}

pub(super) struct LogState {
    target: Arc<Target>,
    queue: VecDeque<Segment>,
    /// The number of bytes that were appended, and how many of them were written or dropped.
    appended: u64,
    done: u64,
    /// The target whose file ends in the middle of a line, because the disk was full.
    ragged: Option<Arc<Target>>,
    loss: Loss,
    /// Messages about dropped lines, if this log cannot contain them itself.
    notices: Vec<String>,
    thread: bool,
    /// True while the thread waits for a line.
    asleep: bool,
    /// The time since which the thread has been in a write without progress.
    writing: Option<Instant>,
    /// True if a thread has waited in vain. Until the next successful write, no thread waits.
    stalled: bool,
    /// The number of threads that wait for their lines to be written, or for the writer thread to end.
    waiters: usize,
    /// True if the writer thread must end as soon as the queue is empty.
    settling: bool,
}

impl LogState {
    /// Resets the state in a forked child. The queued lines belong to the parent, whose thread writes them; the child
    /// has no such thread.
    pub(super) fn begin_in_child(&mut self) {
        self.queue.clear();
        self.done = self.appended;
        self.ragged = None;
        self.loss = Loss::default();
        self.notices.clear();
        self.thread = false;
        self.asleep = false;
        self.writing = None;
        self.stalled = false;
        self.waiters = 0;
        self.settling = false;
    }

    fn queued(&self) -> usize {
        usize::try_from(self.appended - self.done).unwrap_or(usize::MAX)
    }

    /// Counts dropped lines. Returns a message if one is due.
    fn lose(&mut self, name: &str, lines: u64, error: Option<io::Error>) -> Option<String> {
        DROPPED.fetch_add(lines, Ordering::Relaxed);
        let loss = &mut self.loss;
        loss.lines += lines;
        let since = *loss.since.get_or_insert_with(Instant::now);
        loss.error = error.or(loss.error.take());
        if loss.lines == 0 || !is_due(loss.reported) {
            return None;
        }
        let why = match &loss.error {
            Some(error) => system_text(error),
            None => format!("it has accepted none for {} s", round(since.elapsed())),
        };
        loss.reported = Some(Instant::now());
        let lines = plural(std::mem::take(&mut loss.lines));
        Some(format!("{lines} dropped: {name}: {why}; lines are dropped and counted until it accepts them again"))
    }

    /// Ends a loss, because lines are accepted again. Returns a message about the dropped lines if one is due: for a
    /// log that drops lines repeatedly, once per interval; always if `at_once` is true.
    fn recover(&mut self, name: &str, at_once: bool) -> Option<String> {
        let loss = &mut self.loss;
        let since = loss.since?;
        if loss.lines > 0 && !at_once && !is_due(loss.recovered) {
            return None;
        }
        loss.since = None;
        let why = loss.error.take().map(|error| format!(" ({})", system_text(&error))).unwrap_or_default();
        let lines = std::mem::take(&mut loss.lines);
        if lines == 0 {
            return None;
        }
        loss.recovered = Some(Instant::now());
        let lines = plural(lines);
        Some(format!("{lines} dropped: {name} did not accept them for {} s{why}", round(since.elapsed())))
    }

    fn push(&mut self, lines: &[u8]) {
        let target = Arc::clone(&self.target);
        match self.queue.back_mut() {
            Some(segment) if Arc::ptr_eq(&segment.target, &target) => {
                segment.bytes.extend_from_slice(lines);
                segment.ends.push_back(segment.bytes.len());
            }
            _ => {
                let ends = VecDeque::from([lines.len()]);
                self.queue.push_back(Segment { target, bytes: lines.to_vec(), ends });
            }
        }
        self.appended += lines.len() as u64;
    }
}

fn plural(lines: u64) -> String {
    if lines == 1 { "1 log line was".to_owned() } else { format!("{lines} log lines were") }
}

/// Formats a number of seconds with two significant digits.
fn round(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 9.95 { format!("{seconds:.1}") } else { format!("{seconds:.0}") }
}

/// Returns an error's text without the number that Rust appends.
pub(super) fn system_text(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

/// The way in which a log reports dropped lines.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// The log leaves a notice ([`Log::take_notices`]), because another kind of line would not fit its format.
    Notice,
    /// The log writes a line in the format of the error log.
    Text,
    /// The log writes a JSON line in the format of the error log.
    Json,
}

pub(crate) struct Log {
    /// The name in messages: a path, or which standard stream.
    name: String,
    path: Option<PathBuf>,
    manner: Manner,
    state: Mutex<LogState>,
    /// True if `notices` is not empty.
    has_notices: AtomicBool,
    waker: OnceLock<Waker>,
    /// Notifies the writer thread: there is a line, or another thread waits for its lines.
    work: Condvar,
    /// Notifies waiting threads: something was written or dropped, or the writer thread has ended.
    progress: Condvar,
}

impl Log {
    /// Opens the file at `path` for appending.
    pub(super) fn file(path: &Path, manner: Manner) -> io::Result<Arc<Self>> {
        Ok(Self::new(&path.display().to_string(), Some(path), Target::open(path)?, manner))
    }

    /// Creates a log. `name` is for messages. A log with a path can be [reopened](Self::reopen).
    pub(super) fn new(name: &str, path: Option<&Path>, target: Target, manner: Manner) -> Arc<Self> {
        let state = LogState {
            target: Arc::new(target),
            queue: VecDeque::new(),
            appended: 0,
            done: 0,
            ragged: None,
            loss: Loss::default(),
            notices: Vec::new(),
            thread: false,
            asleep: false,
            writing: None,
            stalled: false,
            waiters: 0,
            settling: false,
        };
        let log = Arc::new(Self {
            name: name.to_owned(),
            path: path.map(Path::to_owned),
            manner,
            state: Mutex::new(state),
            has_notices: AtomicBool::new(false),
            waker: OnceLock::new(),
            work: Condvar::new(),
            progress: Condvar::new(),
        });
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|log| log.strong_count() > 0);
        all.push(Arc::downgrade(&log));
        log
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends whole lines. Waits until they are written, at most for `patience`, and not at all if another thread has
    /// waited in vain.
    pub(crate) fn append(self: &Arc<Self>, lines: &[u8], patience: Duration) {
        let mut state = self.lock();
        let queued = state.queued();
        // Lines that exceed the limit are accepted if nothing else is queued.
        if queued > 0 && queued + lines.len() > CAPACITY {
            self.lose(&mut state, count(lines), None);
            return;
        }
        if state.loss.since.is_some() && state.loss.error.is_none() {
            // The queue has room again. A message now is written in the place of the dropped lines.
            self.report_recovery(&mut state, false);
        }
        state.push(lines);
        let mine = state.appended;
        self.start_thread(&mut state);
        if !patience.is_zero() && !state.stalled {
            let (mut state, timeout) = self.wait(state, patience, |state| state.done < mine);
            if timeout && state.done < mine {
                state.stalled = true;
            }
        }
    }

    /// Waits until everything appended so far is written or dropped, at most for `patience`. Returns true if it is.
    /// With `settle` the writer thread ends at once, and this waits for its end too.
    pub(crate) fn flush(self: &Arc<Self>, patience: Duration, settle: bool) -> bool {
        let mut state = self.lock();
        let mine = state.appended;
        let is_stuck = state.stalled || state.writing.is_some_and(|since| since.elapsed() >= STUCK);
        let patience = if is_stuck { patience.min(MOMENT) } else { patience };
        // Lines remain without a thread if none could be started.
        if state.done < mine {
            self.start_thread(&mut state);
        }
        state.settling |= settle;
        let is_pending = |state: &LogState| state.done < mine || (settle && state.thread);
        let (mut state, _) = self.wait(state, patience, is_pending);
        state.settling = false;
        !is_pending(&state)
    }

    /// Waits while `is_pending` returns true, at most for `patience`. Returns true if the time has expired.
    fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, LogState>,
        patience: Duration,
        is_pending: impl Fn(&LogState) -> bool,
    ) -> (MutexGuard<'a, LogState>, bool) {
        if !is_pending(&state) {
            return (state, false);
        }
        state.waiters += 1;
        self.work.notify_one();
        let waited = self.progress.wait_timeout_while(state, patience, |state| is_pending(state));
        let (mut state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        state.waiters -= 1;
        (state, timeout.timed_out())
    }

    /// Opens the path again, after a rotation. Lines that were appended before are written to the old file.
    ///
    /// # Errors
    /// The error and the path, if the file cannot be opened. The old file stays in use.
    pub(super) fn reopen(&self) -> Result<(), (io::Error, &Path)> {
        if let Some(path) = &self.path {
            let target = Target::open(path).map_err(|error| (error, path.as_path()))?;
            self.lock().target = Arc::new(target);
        }
        Ok(())
    }

    /// Removes and returns the messages about dropped lines. `is_last`: no further line will be logged.
    pub(crate) fn take_notices(&self, is_last: bool) -> Vec<String> {
        if !is_last && !self.has_notices.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut state = self.lock();
        if is_last {
            self.report_recovery(&mut state, true);
        }
        self.has_notices.store(false, Ordering::Relaxed);
        std::mem::take(&mut state.notices)
    }

    /// Sets the waker of an engine, which is woken when there is a notice.
    pub(crate) fn set_waker(&self, waker: Waker) {
        self.waker.set(waker).ok();
    }

    fn lose(&self, state: &mut LogState, lines: u64, error: Option<io::Error>) {
        if self.manner == Manner::Notice {
            let message = state.lose(&self.name, lines, error);
            self.leave_notice(state, message);
        } else {
            // This log reports the loss later, in one of its own lines.
            state.loss.reported = Some(Instant::now());
            state.lose(&self.name, lines, error);
        }
    }

    fn report_recovery(&self, state: &mut LogState, at_once: bool) {
        let message = state.recover(&self.name, at_once);
        match self.manner {
            Manner::Notice => self.leave_notice(state, message),
            Manner::Text | Manner::Json => {
                if let Some(message) = message {
                    state.push(own_line(&message, self.manner == Manner::Json).as_bytes());
                }
            }
        }
    }

    fn leave_notice(&self, state: &mut LogState, message: Option<String>) {
        if let Some(message) = message {
            // Notices are rare, but perhaps nothing takes them, so their number is limited.
            state.notices.truncate(NOTICES - 1);
            state.notices.push(message);
            self.has_notices.store(true, Ordering::Release);
            if let Some(waker) = self.waker.get() {
                waker.wake();
            }
        }
    }

    fn start_thread(self: &Arc<Self>, state: &mut LogState) {
        if state.thread {
            if state.asleep {
                self.work.notify_one();
            }
            return;
        }
        let log = Arc::clone(self);
        // Signals must go to threads that can run their handlers.
        let started = with_signals_blocked(|| {
            std::thread::Builder::new().name("kirsch-log".to_owned()).stack_size(256 << 10).spawn(move || run(&log))
        });
        // If no thread can be started, the lines stay queued, and the next append tries again.
        state.thread = started.is_ok();
    }

    /// Writes a segment. Runs in the writer thread, unlocked.
    fn write(&self, segment: Segment) {
        let Segment { target, bytes, mut ends } = segment;
        let is_file = target.is_file();
        let ragged = self.lock().ragged.take_if(|ragged| Arc::ptr_eq(ragged, &target));
        if ragged.is_some() && target.write(b"\n").1.is_err() {
            self.lock().ragged = ragged;
        }
        let mut position = 0;
        while position < bytes.len() {
            let piece = if is_file { bytes.len() } else { piece_end(&bytes, position, &mut ends) };
            let (written, result) = target.write(&bytes[position..piece]);
            let reached = position + written;
            let line = bytes[..reached].iter().rposition(|&byte| byte == b'\n').map_or(0, |feed| feed + 1);
            let is_ragged = result.is_err() && is_file && line < reached && !target.reclaim(&bytes[line..reached]);
            let mut state = self.lock();
            state.done += (reached - position) as u64;
            position = reached;
            state.stalled = false;
            if let Err(error) = result {
                state.done += (bytes.len() - position) as u64;
                if is_ragged {
                    state.ragged = Some(target);
                }
                self.lose(&mut state, count(&bytes[line..]), Some(error));
                self.progress.notify_all();
                return;
            }
            state.writing = Some(Instant::now());
            if position == bytes.len() && state.queue.is_empty() {
                self.report_recovery(&mut state, false);
            }
            if state.waiters > 0 {
                self.progress.notify_all();
            }
        }
    }
}

/// The main function of the writer thread.
fn run(log: &Log) {
    loop {
        let mut state = log.lock();
        if let Some(segment) = state.queue.pop_front() {
            state.writing = Some(Instant::now());
            drop(state);
            log.write(segment);
            let mut state = log.lock();
            state.writing = None;
            if state.queue.is_empty() {
                let wait = log.work.wait_timeout_while(state, COLLECT, |state| state.waiters == 0 && !state.settling);
                drop(wait);
            }
            continue;
        }
        let is_over = state.settling || {
            state.asleep = true;
            let waited = log.work.wait_timeout_while(state, LINGER, |state| state.queue.is_empty() && !state.settling);
            let timeout;
            (state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state.asleep = false;
            timeout.timed_out() && state.queue.is_empty()
        };
        if is_over && state.queue.is_empty() {
            if state.loss.lines > 0 && state.loss.error.is_none() {
                log.report_recovery(&mut state, true);
                if !state.queue.is_empty() {
                    continue;
                }
            }
            state.thread = false;
            ending::add_current();
            log.progress.notify_all();
            return;
        }
    }
}

/// Returns the end of the piece of `bytes` from `position` on that a pipe accepts without mixing it with other writes:
/// as many whole appends as fit, else as many whole lines, else as many bytes.
fn piece_end(bytes: &[u8], position: usize, ends: &mut VecDeque<usize>) -> usize {
    let most = bytes.len().min(position + PIPE_BUF);
    let mut end = None;
    while let Some(next) = ends.front().copied().filter(|next| *next <= most) {
        ends.pop_front();
        end = Some(next).filter(|next| *next > position).or(end);
    }
    end.or_else(|| bytes[position..most].iter().rposition(|&byte| byte == b'\n').map(|feed| position + feed + 1))
        .unwrap_or(most)
}

fn count(lines: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', lines).count() as u64
}

/// Formats a warning like `kirsch.reports`, but without the interpreter.
fn own_line(message: &str, json: bool) -> String {
    let now = SystemTime::now();
    let pid = std::process::id();
    if json {
        let time = rfc3339(now, now.duration_since(UNIX_EPOCH).unwrap_or_default());
        let record = serde_json::json!({
            "time": time, "level": "warning", "pid": pid, "worker": null, "message": message, "traceback": null,
        });
        return format!("{record}\n");
    }
    format!("[{}] [{pid}] [WARNING] {message}\n", local_time(now))
}

/// Returns a local time in the form `2026-11-20 19:00:00 +0000`.
fn local_time(now: SystemTime) -> String {
    let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let time = seconds.try_into().unwrap_or_default();
    // SAFETY: all zeros is a valid value of the structure, and the call fills it.
    let local = unsafe {
        let mut local: libc::tm = std::mem::zeroed();
        libc::localtime_r(&raw const time, &raw mut local);
        local
    };
    let mut text = format!("{:04}-{:02}-{:02} ", local.tm_year + 1900, local.tm_mon + 1, local.tm_mday);
    let minutes = local.tm_gmtoff / 60;
    let sign = if minutes < 0 { '-' } else { '+' };
    let (hours, minutes) = (minutes.abs() / 60, minutes.abs() % 60);
    // Writing to a String cannot fail.
    let _ = write!(text, "{:02}:{:02}:{:02} {sign}{hours:02}{minutes:02}", local.tm_hour, local.tm_min, local.tm_sec);
    text
}

fn with_signals_blocked<R>(act: impl FnOnce() -> R) -> R {
    // SAFETY: both sets are filled by calls before they are read; the previous mask is restored.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let result = act();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        result
    }
}

/// Waits until every log of this process has written or dropped all that was appended so far, at most for `patience` in
/// total. Returns true if all have. With `settle` their threads have also ended, even for the kernel, so the process
/// may fork.
pub(super) fn flush_all(patience: Duration, settle: bool) -> bool {
    let logs: Vec<_> = {
        let all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(Weak::upgrade).collect()
    };
    let until = Instant::now() + patience;
    // Flush every log, even if no time is left.
    let done = logs.iter().map(|log| log.flush(until.saturating_duration_since(Instant::now()), settle));
    let are_done = done.filter(|done| !done).count() == 0;
    are_done && (!settle || ending::wait_until_gone(until))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::os::fd::{AsRawFd as _, OwnedFd};

    const PATIENCE: Duration = Duration::from_secs(60);

    fn pipe(manner: Manner) -> (io::PipeReader, Arc<Log>) {
        let (reader, writer) = io::pipe().unwrap();
        let target = Target::Owned(OwnedFd::from(writer));
        (reader, Log::new("a pipe", None, target, manner))
    }

    #[test]
    fn test_lines_are_written_whole_and_in_order() {
        let (mut reader, log) = pipe(Manner::Text);
        let mut expected = String::new();
        for number in 0..1000 {
            let line = format!("line {number}\n");
            log.append(line.as_bytes(), Duration::ZERO);
            expected.push_str(&line);
        }
        assert!(log.flush(PATIENCE, true));
        drop(log);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, expected);
    }

    #[test]
    fn test_full_log_drops_lines_and_counts_them_in_a_notice() {
        let (mut reader, mut writer) = io::pipe().unwrap();
        let line = [&[b'x'; 1023][..], b"\n"].concat();
        // The pipe is full from the start, so the writer thread makes no progress until the test reads.
        // SAFETY: the descriptor is open, and this request neither reads nor fills memory.
        let size = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_GETPIPE_SZ) };
        let full = line.repeat(usize::try_from(size).unwrap() / line.len());
        writer.write_all(&full).unwrap();
        let log = Log::new("a pipe", None, Target::Owned(OwnedFd::from(writer)), Manner::Notice);
        // Append more than the queue holds while nothing is read.
        for _ in 0..3 * CAPACITY / line.len() {
            log.append(&line, Duration::ZERO);
        }
        let notices = log.take_notices(false);
        assert_eq!(notices.len(), 1, "{notices:?}");
        assert!(notices[0].contains("dropped: a pipe: it has accepted none for"), "{notices:?}");
        // Resume reading: every queued line must arrive, none of them truncated.
        let reads = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).unwrap();
            bytes
        });
        assert!(log.flush(PATIENCE, true));
        let last = log.take_notices(true);
        assert!(last.iter().any(|notice| notice.contains("a pipe did not accept them for")), "{last:?}");
        drop(log);
        let bytes = reads.join().unwrap();
        assert!(bytes.len() > CAPACITY / 2 && bytes.chunks(line.len()).all(|chunk| chunk == line));
    }

    #[test]
    fn test_error_of_the_system_is_named() {
        let (reader, log) = pipe(Manner::Notice);
        drop(reader);
        log.append(b"lost\n", Duration::ZERO);
        assert!(log.flush(PATIENCE, true));
        let notices = log.take_notices(false);
        assert!(notices[0].starts_with("1 log line was dropped: a pipe: Broken pipe"), "{notices:?}");
    }

    #[test]
    fn test_pieces_for_a_pipe_end_behind_whole_appends_or_lines() {
        let bytes = [[b'a'; 3000], [b'b'; 3000]].concat();
        let mut ends = VecDeque::from([3000, 6000]);
        assert_eq!(piece_end(&bytes, 0, &mut ends), 3000);
        assert_eq!(piece_end(&bytes, 3000, &mut ends), 6000);
        // A large append is cut after a line, or else at the limit of the pipe.
        let mut lines = vec![b'c'; 2 * PIPE_BUF];
        lines[99] = b'\n';
        let mut ends = VecDeque::from([lines.len()]);
        assert_eq!(piece_end(&lines, 0, &mut ends), 100);
        assert_eq!(piece_end(&lines, 100, &mut ends), 100 + PIPE_BUF);
    }

    #[test]
    fn test_reopen_follows_the_path_and_keeps_the_old_file_where_it_cannot() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let log = Log::file(&path, Manner::Text).unwrap();
        log.append(b"one\n", PATIENCE);
        let rotated = directory.path().join("log.1");
        std::fs::rename(&path, &rotated).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(log.reopen().is_err());
        log.append(b"two\n", PATIENCE);
        std::fs::remove_dir(&path).unwrap();
        log.reopen().unwrap();
        log.append(b"three\n", PATIENCE);
        assert_eq!(std::fs::read_to_string(&rotated).unwrap(), "one\ntwo\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "three\n");
    }

    #[test]
    fn test_own_lines_have_the_form_of_the_error_log() {
        assert!(own_line("a message", false).ends_with("] [WARNING] a message\n"));
        let record: serde_json::Value = serde_json::from_str(&own_line("a message", true)).unwrap();
        assert_eq!((&record["level"], &record["message"]), (&"warning".into(), &"a message".into()));
    }
}
