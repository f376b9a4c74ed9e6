//! Devices and element types by name, and the errors that name them.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod common;

use std::error::Error as _;
use std::sync::Arc;

use aether_core::{
    Backend, Chunk, DType, Device, DeviceId, DeviceKind, Error, ErrorKind, HostBackend, Stream,
};

#[test]
fn devices_print_as_they_parse() {
    for text in ["cpu:0", "cpu:4294967295", "cuda:1", "cuda_host:0", "4711:3"] {
        let id: DeviceId = text.parse().unwrap();
        assert_eq!(id.to_string(), text);
        assert_eq!(format!("{id:?}"), text);
    }
    assert_eq!("cpu:2".parse::<DeviceId>().unwrap(), DeviceId::new(DeviceKind::CPU, 2));
    assert_eq!((DeviceKind::CPU.0, DeviceKind::CUDA.0, DeviceKind::CUDA_HOST.0), (1, 2, 3));
    // A number is a kind as well, and prints by its name.
    assert_eq!("2:5".parse::<DeviceId>().unwrap().to_string(), "cuda:5");
    assert_eq!(Device::cpu(7).to_string(), "cpu:7");
}

#[test]
fn text_that_names_no_device_is_refused() {
    for text in [
        "",
        "cpu",
        "cpu:",
        ":0",
        "cpu:-1",
        "cpu:+1",
        "+1:0",
        "cpu:x",
        "cpu:0:0",
        "gpu:0",
        "CPU:0",
        " cpu:0",
        "cpu:4294967296",
        "-1:0",
        "cpu :0",
    ] {
        let error = text.parse::<DeviceId>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Parse, "{text}");
    }
    let error = "cpu".parse::<DeviceId>().unwrap_err();
    assert_eq!(error.to_string(), "parse a device: `cpu` is not of the form kind:index");
}

#[test]
fn a_kind_of_ones_own_prints_by_its_name_once_it_is_registered() {
    let kind = DeviceKind(5001);
    assert_eq!((kind.to_string(), kind.name()), ("5001".to_owned(), None));
    kind.register("tape").unwrap();
    kind.register("tape").unwrap();
    assert_eq!((kind.to_string(), kind.name()), ("tape".to_owned(), Some("tape")));
    assert_eq!("tape:1".parse::<DeviceId>().unwrap(), DeviceId::new(kind, 1));
    assert_eq!("5001:1".parse::<DeviceId>().unwrap().to_string(), "tape:1");
    for (kind, name) in [
        (kind, "drum"),
        (DeviceKind(5002), "tape"),
        (DeviceKind(5002), "cpu"),
        (DeviceKind::CPU, "host"),
        (DeviceKind(5002), ""),
        (DeviceKind(5002), "5003"),
        (DeviceKind(5002), "Tape"),
        (DeviceKind(5002), "a:b"),
        (DeviceKind(5002), "a b"),
    ] {
        let error = kind.register(name).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{name}");
    }
    DeviceKind::CPU.register("cpu").unwrap();
    assert_eq!(DeviceKind(5002).to_string(), "5002");
}

#[test]
fn devices_are_equal_by_name_and_by_backend_instance() {
    assert_eq!(Device::cpu(1), Device::cpu(1));
    assert_ne!(Device::cpu(1), Device::cpu(2));
    assert!(Device::cpu(1).shares_backend(&Device::cpu(2)));
    let backend: Arc<dyn Backend> = Arc::new(HostBackend::new());
    let id = DeviceId::new(DeviceKind::CPU, 1);
    let (one, two) = (Device::new(id, backend.clone()), Device::new(id, backend));
    assert_eq!(one, two);
    assert_ne!(one, Device::cpu(1));
    assert!(!one.shares_backend(&Device::cpu(1)));
    assert_eq!((one.id(), one.kind()), (id, DeviceKind::CPU));
}

#[test]
fn streams_are_equal_when_they_are_the_same() {
    let stream = Stream::new(&Device::cpu(0)).unwrap();
    let same = stream.clone();
    assert_eq!(stream, same);
    let other = Stream::new(&Device::cpu(0)).unwrap();
    assert_ne!(stream, other);
    assert_ne!(stream.native(), other.native());
    assert_eq!(stream.raw(), 0);
}

#[test]
fn element_types_print_as_they_parse() {
    for dtype in DType::ALL {
        assert_eq!(dtype.to_string().parse::<DType>().unwrap(), dtype);
        assert!([1, 2, 4, 8].contains(&dtype.size()));
    }
    assert_eq!(format!("{:>6}|{:<6}|", DType::BF16, DType::F8E4M3), "  bf16|f8e4m3|");
    for text in ["", "float", "F32", "f32 ", "i128"] {
        let error = text.parse::<DType>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Parse);
        assert!(error.reason().contains("f8e4m3"), "{error}");
    }
}

#[test]
fn an_error_says_what_was_attempted_where_how_large_and_why() {
    let source = std::io::Error::other("the disk is gone");
    let error = Error::new(ErrorKind::Io, "read", "the file ended")
        .on("cpu:3")
        .of_bytes(17)
        .about_ranks([2, 5])
        .caused_by(source);
    assert_eq!(error.to_string(), "read on cpu:3 (17 bytes): the file ended");
    assert_eq!(format!("{error:?}"), "Io: read on cpu:3 (17 bytes): the file ended");
    assert_eq!(
        (error.kind(), error.attempted(), error.reason()),
        (ErrorKind::Io, "read", "the file ended")
    );
    assert_eq!(
        (error.place(), error.bytes(), error.ranks()),
        (Some("cpu:3"), Some(17), &[2, 5][..])
    );
    assert_eq!(error.source().unwrap().to_string(), "the disk is gone");
    // A change of a clone doesn't change the original.
    let other = error.clone().on("cpu:4");
    assert_eq!((error.place(), other.place()), (Some("cpu:3"), Some("cpu:4")));
    let plain = Error::new(ErrorKind::Empty, "form a group", "no device is named");
    assert_eq!(plain.to_string(), "form a group: no device is named");
    assert!(plain.source().is_none() && plain.bytes().is_none() && plain.ranks().is_empty());
}

#[test]
#[cfg_attr(miri, ignore = "it reads /proc")]
fn the_host_tells_its_memory_and_describes_itself() {
    let device = Device::cpu(0);
    let backend = device.backend();
    assert_eq!(backend.name(), "host");
    assert!(backend.description(device.id()).starts_with("host memory, "));
    if cfg!(target_os = "linux") {
        let info = backend.memory_info(device.id()).unwrap();
        assert!(info.total >= info.free && info.total > 1 << 20);
    }
    let chunk = Chunk::allocate(&device, 8).unwrap();
    assert!(format!("{chunk:?}").starts_with("Chunk(cpu:0 0x"));
}
