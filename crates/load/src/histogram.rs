//! Histograms of times, in HdrHistogram's form and file formats.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use std::fmt;
use std::io::{Cursor, Write as _};

/// A histogram of times in nanoseconds, with three significant digits. Times above an hour count as an hour.
#[derive(Clone)]
pub struct Histogram {
    counts: hdrhistogram::Histogram<u64>,
}

/// The error for a text that is not a readable histogram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAHistogram {
    /// The reason why the text cannot be read.
    pub problem: String,
}

impl fmt::Display for NotAHistogram {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.problem)
    }
}

impl std::error::Error for NotAHistogram {}

/// One bucket of a histogram.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    /// The longest time in the bucket.
    pub value: u64,
    /// The number of times in the bucket.
    pub count: u64,
    /// The fraction of all times that are at most this long, from 0 to 1.
    pub quantile: f64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Histogram({} times)", self.counts.len())
    }
}

impl Histogram {
    /// The shortest time that is distinguished, in nanoseconds.
    pub const LOWEST: u64 = 1;
    /// The longest time that is distinguished, in nanoseconds.
    pub const HIGHEST: u64 = 3_600_000_000_000;
    /// The number of significant digits.
    pub const DIGITS: u8 = 3;

    /// Creates an empty histogram.
    ///
    /// # Panics
    /// Never: the bounds are valid.
    #[must_use]
    pub fn new() -> Self {
        let counts = hdrhistogram::Histogram::new_with_bounds(Self::LOWEST, Self::HIGHEST, Self::DIGITS);
        Self { counts: counts.expect("valid bounds") }
    }

    /// Adds a time.
    #[inline]
    pub fn record(&mut self, nanoseconds: u64) {
        self.counts.saturating_record(nanoseconds);
    }

    /// Adds a time `count` times.
    pub fn record_many(&mut self, nanoseconds: u64, count: u64) {
        self.counts.saturating_record_n(nanoseconds, count);
    }

    /// Adds all times of `other`.
    ///
    /// # Panics
    /// Never: this histogram grows if that of another program has a larger range.
    pub fn merge(&mut self, other: &Self) {
        self.counts.auto(true);
        self.counts.add(&other.counts).expect("it grows as needed");
        self.counts.auto(false);
    }

    /// Removes all times.
    pub fn clear(&mut self) {
        self.counts.reset();
    }

    /// Returns the number of times.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.counts.len()
    }

    /// Returns true if there are no times.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Returns the quantile, a fraction from 0 to 1: the longest time in the bucket below which that fraction of all
    /// times lies. `None` if the histogram is empty.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Option<u64> {
        // The upper bound of the bucket may exceed the longest recorded time.
        (!self.is_empty()).then(|| self.counts.value_at_quantile(quantile).min(self.counts.max()))
    }

    /// Returns the number of times that are at most this long, at the resolution of the histogram.
    #[must_use]
    pub fn count_up_to(&self, nanoseconds: u64) -> u64 {
        self.counts
            .iter_recorded()
            .take_while(|at| at.value_iterated_to() <= nanoseconds)
            .map(|at| at.count_since_last_iteration())
            .sum::<u64>()
            + self.partial(nanoseconds)
    }

    /// Returns the number of times in the bucket of `nanoseconds`; 0 if `nanoseconds` is the upper bound of the bucket,
    /// because the caller has counted that bucket already.
    fn partial(&self, nanoseconds: u64) -> u64 {
        let last = self.counts.highest_equivalent(nanoseconds);
        if last == nanoseconds { 0 } else { self.counts.count_at(nanoseconds) }
    }

    /// Returns the shortest time; `None` if the histogram is empty.
    #[must_use]
    pub fn min(&self) -> Option<u64> {
        (!self.is_empty()).then(|| self.counts.min())
    }

    /// Returns the longest time; `None` if the histogram is empty.
    #[must_use]
    pub fn max(&self) -> Option<u64> {
        (!self.is_empty()).then(|| self.counts.max())
    }

    /// Returns the mean, at the resolution of the histogram; `None` if it is empty.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.counts.mean())
    }

    /// Returns the standard deviation, at the resolution of the histogram; `None` if it is empty.
    #[must_use]
    pub fn deviation(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.counts.stdev())
    }

    /// Returns the buckets that are not empty, in ascending order.
    pub fn recorded(&self) -> impl Iterator<Item = Bucket> + '_ {
        let total = self.counts.len();
        let mut so_far = 0;
        self.counts.iter_recorded().map(move |at| {
            so_far += at.count_at_value();
            Bucket { value: at.value_iterated_to(), count: at.count_at_value(), quantile: ratio(so_far, total) }
        })
    }

    /// Returns the distribution for a plot with a logarithmic axis of quantiles, with `steps` points for each halving
    /// of the distance to 1. `value` is the time at the quantile, `count` the number of times since the previous point.
    pub fn spectrum(&self, steps: u32) -> impl Iterator<Item = Bucket> + '_ {
        self.counts.iter_quantiles(steps.max(1)).map(|at| Bucket {
            value: at.value_iterated_to().min(self.counts.max()),
            count: at.count_since_last_iteration(),
            quantile: at.quantile(),
        })
    }

    /// Encodes the histogram in HdrHistogram's format V2, compressed, in base64.
    ///
    /// # Panics
    /// Never: writing to memory does not fail.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new().serialize(&self.counts, &mut bytes).expect("memory takes all");
        STANDARD.encode(bytes)
    }

    /// Decodes a histogram in format V2, compressed or not, also from other programs.
    ///
    /// # Errors
    /// If the text is not such a histogram, or exceeds the supported range.
    pub fn decode(text: &str) -> Result<Self, NotAHistogram> {
        let no = |problem: String| NotAHistogram { problem };
        let bytes = STANDARD.decode(text.trim()).map_err(|error| no(format!("not base64: {error}")))?;
        let counts = Deserializer::new()
            .deserialize(&mut Cursor::new(&bytes))
            .map_err(|error| no(format!("not a histogram in HdrHistogram's V2: {error}")))?;
        let mut all = Self::new();
        all.merge(&Self { counts });
        Ok(all)
    }

    /// Returns the header of a log of intervals (HdrHistogram's log format 1.3). `start` is in seconds since 1970; the
    /// times in the lines are relative to it.
    ///
    /// # Panics
    /// Never: writing to memory does not fail.
    #[must_use]
    pub fn log_head(start: f64, comments: &[&str]) -> String {
        let mut log = Vec::new();
        for comment in comments {
            // Text after a line feed would be read as another line of the log.
            for line in comment.lines() {
                writeln!(log, "#{line}").expect("memory takes all");
            }
        }
        writeln!(log, "#[Histogram log format version 1.3]").expect("memory takes all");
        writeln!(log, "#[StartTime: {start:.3} (seconds since epoch)]").expect("memory takes all");
        writeln!(log, "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"")
            .expect("memory takes all");
        String::from_utf8(log).expect("text")
    }

    /// Returns a line of a log: an interval that begins `at` seconds after the start. The maximum is in milliseconds,
    /// as the format requires.
    #[must_use]
    pub fn log_line(&self, at: f64, seconds: f64, tag: Option<&str>) -> String {
        #[allow(clippy::cast_precision_loss, reason = "an hour of nanoseconds fits")]
        let max = self.counts.max() as f64 / 1e6;
        // A comma or a space would end the tag.
        let tag = tag.map_or(String::new(), |tag| format!("Tag={},", tag.replace([',', ' ', '\r', '\n'], "_")));
        format!("{tag}{at:.3},{seconds:.3},{max:.3},{}\n", self.encode())
    }
}

#[allow(clippy::cast_precision_loss, reason = "a share needs no more than 52 bits")]
fn ratio(part: u64, whole: u64) -> f64 {
    debug_assert!(part <= whole, "a share is at most the whole: {part} of {whole}");
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_up_to_an_hour() {
        for value in [1, 999, 5_000, 1_234_567, 999_999_999, 61_234_567_890, Histogram::HIGHEST] {
            let mut histogram = Histogram::new();
            histogram.record(value);
            let found = histogram.quantile(0.5).unwrap();
            assert!(found.abs_diff(value) <= value / 1000, "{value} became {found}");
            assert_eq!(histogram.quantile(1.0), histogram.max());
        }
        let mut histogram = Histogram::new();
        histogram.record(u64::MAX);
        histogram.record(0);
        assert_eq!(histogram.len(), 2);
        assert_eq!(histogram.quantile(0.5), Some(0));
    }

    #[test]
    fn what_is_encoded_is_decoded_and_merged() {
        let mut whole = Histogram::new();
        let mut merged = Histogram::new();
        for part in 0..4 {
            let mut histogram = Histogram::new();
            for value in 1..1000 {
                histogram.record(value * 10_000 * (part + 1));
                whole.record(value * 10_000 * (part + 1));
            }
            merged.merge(&Histogram::decode(&histogram.encode()).unwrap());
        }
        assert_eq!(merged.counts, whole.counts);
        assert!(merged.recorded().eq(whole.recorded()));
        assert!((whole.recorded().last().unwrap().quantile - 1.0).abs() < 1e-12);
        assert_eq!(whole.recorded().map(|bucket| bucket.count).sum::<u64>(), whole.len());
        assert_eq!(whole.spectrum(5).map(|bucket| bucket.count).sum::<u64>(), whole.len());
        assert_eq!(whole.count_up_to(Histogram::HIGHEST), whole.len());
        assert_eq!(whole.count_up_to(9_000), 0);
    }

    #[test]
    fn an_empty_one_says_nothing() {
        let empty = Histogram::decode(&Histogram::new().encode()).unwrap();
        assert!(empty.is_empty());
        assert_eq!((empty.min(), empty.max(), empty.quantile(0.99), empty.mean()), (None, None, None, None));
        assert_eq!(empty.recorded().count(), 0);
    }

    #[test]
    fn what_is_no_histogram_is_refused() {
        for text in ["", "x", "AAAA", "HISTFAAAAB", &STANDARD.encode([0x1c, 0x84, 0x93, 0x13, 0, 0, 0, 0])] {
            assert!(Histogram::decode(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_log_can_be_read_by_hdrhistogram() {
        use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

        let mut histogram = Histogram::new();
        histogram.record(5_000_000);
        let mut log = Histogram::log_head(1_700_000_000.5, &["kirsch bench\nof two lines"]);
        log += &histogram.log_line(0.0, 1.0, None);
        log += &histogram.log_line(1.0, 0.5, Some("a tag"));
        let entries: Vec<_> = IntervalLogIterator::new(log.as_bytes()).map(|entry| entry.unwrap()).collect();
        let Some(LogEntry::StartTime(start)) = entries.first() else { panic!("no start: {entries:?}") };
        assert!((start.as_secs_f64() - 1_700_000_000.5).abs() < 1e-6);
        let [LogEntry::Interval(first), LogEntry::Interval(second)] = &entries[1..] else { panic!("{entries:?}") };
        assert_eq!(Histogram::decode(first.encoded_histogram()).unwrap().counts, histogram.counts);
        assert_eq!((first.tag(), second.tag().map(|tag| tag.as_str())), (None, Some("a_tag")));
        assert!((second.start_timestamp().as_secs_f64() - 1.0).abs() < 1e-9);
        assert!((first.max() - 5.0).abs() < 0.01);
    }
}
