//! The transport that finds a route for every pair of devices.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use aether_core::{
    Completion, Device, DeviceId, Error, ErrorKind, Link, Result, Rows, Span, SpanMut, Stream,
    check_tracked,
};

use crate::pipeline::Pipeline;
use crate::route::{Path, Route};
use crate::staging::Pool;
use crate::tiles::Tiles;
use crate::transport::{Transport, check_rows, stream_for};

/// The transport over aether-core's copies and streams: it makes every pair of devices work.
///
/// For each ordered pair it decides a [`Route`] once and remembers it. Where no single copy goes, and
/// where the driver would stage one, it stages in pieces: each copy that is under way has two
/// pieces of memory on each staging device it passes, so that while one leg fills a piece the next
/// leg empties the other. Pieces and streams are kept for the next copy.
///
/// Clones share routes and staging memory.
#[derive(Clone)]
pub struct StreamTransport(Arc<Inner>);

struct Inner {
    staging_always: bool,
    piece_bytes: usize,
    paths: RwLock<Paths>,
    pool: Pool,
}

/// By the names of both ends; devices of one name may be of several backend instances.
type Paths = HashMap<(DeviceId, DeviceId), Vec<Arc<Path>>>;

impl StreamTransport {
    /// The size of a staging piece unless another is asked for, in bytes.
    pub const PIECE_BYTES: usize = 1 << 20;

    /// A transport that takes the shortest routes.
    pub fn new() -> Self {
        Self::with(false, Self::PIECE_BYTES)
    }

    /// A transport that stages every copy through memory of the host, where there is a way: for
    /// machines whose direct routes can't be trusted, and to test staging.
    #[must_use]
    pub fn staging_always(self) -> Self {
        Self::with(true, self.0.piece_bytes)
    }

    /// A transport with staging pieces of so many bytes, at least 1.
    #[must_use]
    pub fn piece_bytes(self, bytes: usize) -> Self {
        Self::with(self.0.staging_always, bytes.max(1))
    }

    /// Which way bytes take from one device to the other.
    ///
    /// # Errors
    /// `IllegalPair` if there is none.
    pub fn route(&self, from: &Device, to: &Device) -> Result<Route> {
        Ok(self.path(from, to)?.route)
    }

    /// The devices through which bytes are staged from one device to the other, in order.
    ///
    /// # Errors
    /// `IllegalPair` if there is no way.
    pub fn stops(&self, from: &Device, to: &Device) -> Result<Vec<Device>> {
        Ok(self.path(from, to)?.stops().to_vec())
    }

    /// How much staging memory is kept for later copies, in bytes.
    pub fn kept_bytes(&self) -> usize {
        self.0.pool.kept_bytes()
    }

    /// Frees the staging memory that is kept, each piece when its work has ended.
    pub fn release(&self) {
        self.0.pool.clear();
    }

    fn with(staging_always: bool, piece_bytes: usize) -> Self {
        let (paths, pool) = (RwLock::default(), Pool::default());
        Self(Arc::new(Inner { staging_always, piece_bytes, paths, pool }))
    }

    fn path(&self, from: &Device, to: &Device) -> Result<Arc<Path>> {
        let key = (from.id(), to.id());
        let same =
            |it: &&Arc<Path>| it.devices.first() == Some(from) && it.devices.last() == Some(to);
        let paths = self.0.paths.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = paths.get(&key).and_then(|all| all.iter().find(same)) {
            return Ok(known.clone());
        }
        drop(paths);
        // Looked at again under the lock that writes, so that backends are asked once.
        let mut paths = self.0.paths.write().unwrap_or_else(PoisonError::into_inner);
        let all = paths.entry(key).or_default();
        if let Some(known) = all.iter().find(same) {
            return Ok(known.clone());
        }
        let found = Arc::new(Path::find(from, to, self.0.staging_always)?);
        tracing::debug!(%from, %to, route = %found.route, "route");
        all.push(found.clone());
        Ok(found)
    }

    fn path_between(&self, dst: &SpanMut<'_>, src: &Span<'_>) -> Result<Arc<Path>> {
        self.path(&device_of(src), &device_of(&dst.as_span()))
    }

    /// Copies checked rows in pieces.
    fn staged(&self, path: &Path, dst: SpanMut<'_>, src: Span<'_>, rows: Rows) -> Result<()> {
        let tiles = Tiles::new(rows, self.0.piece_bytes);
        if tiles.count() == 0 {
            return Ok(());
        }
        let tracked = (src.is_tracked(), dst.as_span().is_tracked());
        Pipeline::blocking(path, tiles, &self.0.pool, tracked)?.run(dst, src)
    }

    fn staged_async(
        &self,
        path: &Path,
        dst: SpanMut<'_>,
        src: Span<'_>,
        rows: Rows,
        stream: &Stream,
    ) -> Result<Completion> {
        check_tracked("copy_async", &dst.as_span())?;
        check_tracked("copy_async", &src)?;
        let ends = [path.devices.first(), path.devices.last()];
        if !ends.into_iter().flatten().any(|it| it.shares_backend(stream.device())) {
            let reason = format!("a stream of {} takes no part in it", stream.device());
            return Err(Error::new(ErrorKind::WrongDevice, "copy_async", reason)
                .on(between(path))
                .of_bytes(src.bytes() as u64));
        }
        let tiles = Tiles::new(rows, self.0.piece_bytes);
        Pipeline::queued(path, tiles, &self.0.pool)?.start(dst, src, stream)
    }
}

impl Transport for StreamTransport {
    fn copy(&self, mut dst: SpanMut<'_>, src: Span<'_>) -> Result<()> {
        let path = self.path_between(&dst, &src)?;
        if path.route != Route::Staged {
            return aether_core::copy(&mut dst, &src);
        }
        check(&path, &dst, &src)?;
        self.staged(&path, dst, src, one_row(src.bytes()))
    }

    fn copy_async(
        &self,
        mut dst: SpanMut<'_>,
        src: Span<'_>,
        stream: &Stream,
    ) -> Result<Completion> {
        let path = self.path_between(&dst, &src)?;
        if goes_on_a_stream(&path) {
            return aether_core::copy_async(&mut dst, &src, stream);
        }
        check(&path, &dst, &src)?;
        self.staged_async(&path, dst, src, one_row(src.bytes()), stream)
    }

    /// The source is read once for all destinations that core copies to itself.
    fn copy_each(&self, dsts: Vec<SpanMut<'_>>, src: Span<'_>) -> Vec<Result<()>> {
        let is_direct = |dst: &SpanMut<'_>| {
            self.path_between(dst, &src).is_ok_and(|path| path.route != Route::Staged)
        };
        let (mut direct, others) = parted(dsts, is_direct);
        let copied = aether_core::copy_each(&mut direct.spans, &src);
        let others = others.map(|_, dst| self.copy(dst, src));
        together(direct.places, copied, others)
    }

    fn copy_each_async(
        &self,
        dsts: Vec<SpanMut<'_>>,
        src: Span<'_>,
        streams: &[Stream],
    ) -> Vec<Result<Completion>> {
        let count = dsts.len();
        if streams.len() < count {
            // Each destination is told for itself whether there is a stream for it.
            let each = dsts.into_iter().enumerate();
            let copy = |(at, dst)| self.copy_async(dst, src, stream_for(at, streams, count)?);
            return each.map(copy).collect();
        }
        let is_direct = |dst: &SpanMut<'_>| {
            self.path_between(dst, &src).is_ok_and(|path| goes_on_a_stream(&path))
        };
        let (mut direct, others) = parted(dsts, is_direct);
        let of = |at: &usize| streams.get(*at).cloned();
        let own: Vec<Stream> = direct.places.iter().filter_map(of).collect();
        let queued = aether_core::copy_each_async(&mut direct.spans, &src, &own);
        let others =
            others.map(|at, dst| self.copy_async(dst, src, stream_for(at, streams, count)?));
        together(direct.places, queued, others)
    }

    fn copy_rows(&self, mut dst: SpanMut<'_>, src: Span<'_>, rows: Rows) -> Result<()> {
        let path = self.path_between(&dst, &src)?;
        if path.route != Route::Staged {
            return aether_core::copy_rows(&mut dst, &src, rows);
        }
        check_rows(&dst, &src, rows)?;
        check_ends(&path, &dst, &src)?;
        self.staged(&path, dst, src, rows)
    }

    fn copy_rows_async(
        &self,
        mut dst: SpanMut<'_>,
        src: Span<'_>,
        rows: Rows,
        stream: &Stream,
    ) -> Result<Completion> {
        let path = self.path_between(&dst, &src)?;
        if goes_on_a_stream(&path) {
            return aether_core::copy_rows_async(&mut dst, &src, rows, stream);
        }
        check_rows(&dst, &src, rows)?;
        check_ends(&path, &dst, &src)?;
        self.staged_async(&path, dst, src, rows, stream)
    }
}

impl Default for StreamTransport {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for StreamTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamTransport")
            .field("staging_always", &self.0.staging_always)
            .field("piece_bytes", &self.0.piece_bytes)
            .finish_non_exhaustive()
    }
}

/// Some of several destinations, and which they are.
#[derive(Default)]
struct Part<'a> {
    places: Vec<usize>,
    spans: Vec<SpanMut<'a>>,
}

impl<'a> Part<'a> {
    fn map<T>(self, mut copy: impl FnMut(usize, SpanMut<'a>) -> T) -> Vec<(usize, T)> {
        let each = self.places.into_iter().zip(self.spans);
        each.map(|(at, dst)| (at, copy(at, dst))).collect()
    }
}

/// Those that are direct, and the others.
fn parted<'a>(
    dsts: Vec<SpanMut<'a>>,
    is_direct: impl Fn(&SpanMut<'a>) -> bool,
) -> (Part<'a>, Part<'a>) {
    let (mut direct, mut others) = (Part::default(), Part::default());
    for (at, dst) in dsts.into_iter().enumerate() {
        let part = if is_direct(&dst) { &mut direct } else { &mut others };
        part.places.push(at);
        part.spans.push(dst);
    }
    (direct, others)
}

/// All outcomes, in the order of the destinations.
fn together<T>(places: Vec<usize>, outcomes: Vec<T>, others: Vec<(usize, T)>) -> Vec<T> {
    let mut all: Vec<_> = places.into_iter().zip(outcomes).chain(others).collect();
    all.sort_by_key(|it| it.0);
    all.into_iter().map(|it| it.1).collect()
}

/// Whether core's own copy does it. What else goes by one copy, between memory of the host, is left
/// to the processor.
fn goes_on_a_stream(path: &Path) -> bool {
    let processor = path.devices.iter().all(Device::host_addressable);
    path.route != Route::Staged && (path.links.iter().all(|&it| it >= Link::Indirect) || !processor)
}

/// Plain memory of the host is on every host device alike.
fn device_of(span: &Span<'_>) -> Device {
    span.device().cloned().unwrap_or_else(|| Device::cpu(0))
}

fn one_row(bytes: usize) -> Rows {
    Rows { count: 1, bytes, dst_pitch: bytes, src_pitch: bytes }
}

fn between(path: &Path) -> String {
    let ends = path.devices.first().zip(path.devices.last());
    ends.map_or_else(String::new, |(from, to)| format!("{from} to {to}"))
}

/// What core checks of a copy, for one that is made of several.
fn check(path: &Path, dst: &SpanMut<'_>, src: &Span<'_>) -> Result<()> {
    if dst.as_span().bytes() != src.bytes() {
        let reason = format!("the destination has {} bytes", dst.as_span().bytes());
        return Err(Error::new(ErrorKind::SizeMismatch, "copy", reason)
            .on(between(path))
            .of_bytes(src.bytes() as u64));
    }
    check_ends(path, dst, src)
}

fn check_ends(path: &Path, dst: &SpanMut<'_>, src: &Span<'_>) -> Result<()> {
    dst.check_writable("copy")?;
    if dst.as_span().overlaps(src) {
        let reason = "source and destination overlap";
        return Err(Error::new(ErrorKind::Overlap, "copy", reason)
            .on(between(path))
            .of_bytes(src.bytes() as u64));
    }
    Ok(())
}
