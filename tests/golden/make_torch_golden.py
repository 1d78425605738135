#!/usr/bin/env python3
"""Writes tests/golden/torch: small files of torch.save (the archive and the older form, several pickle protocols), numpy and
safetensors, and expected.txt: for each file its tensors (name, dtype, shape, the numbers as doubles). Needs torch, numpy and
safetensors. Usage: make_torch_golden.py"""
import argparse, collections, enum, os, pickle, struct
import numpy, torch
from safetensors.torch import save_file

folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch")
os.makedirs(folder, exist_ok=True)
NAMES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64", torch.int32: "I32",
         torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL", torch.float8_e4m3fn: "F8_E4M3",
         torch.float8_e5m2: "F8_E5M2", torch.uint16: "U16", torch.uint32: "U32", torch.uint64: "U64"}
expected = open(os.path.join(folder, "expected.txt"), "w")


def expect(file, tensors):
    for name, tensor in tensors:
        numbers = tensor.detach().contiguous().flatten()
        if tensor.dtype in (torch.uint16, torch.uint32, torch.uint64):
            numbers = [int(x) for x in numbers.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()])]
        else:
            numbers = numbers.to(torch.float64).tolist()
        shape = " ".join(str(d) for d in tensor.shape)
        print(f"{file}\t{name}\t{NAMES[tensor.dtype]}\t{shape}\t{' '.join('%.17g' % x for x in numbers)}", file=expected)


class Level(enum.Enum):
    LOW = 1


class Evil:
    def __reduce__(self):
        return os.system, ("touch shoal-was-here",)


class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(3, 2)


torch.manual_seed(7)
base = torch.arange(24, dtype=torch.float32).reshape(4, 6) / 8
every = collections.OrderedDict((name.lower(), (torch.arange(6) - (0 if dtype in (torch.uint8, torch.bool) else 3)).to(dtype).reshape(2, 3))
                                for dtype, name in NAMES.items() if not name.startswith(("U16", "U32", "U64")))
views = {"plain": base, "transposed": base.t(), "part": base[1:3, 2:5], "steps": base[::2, ::3], "expanded": base[0, :3].expand(2, 3),
         "scalar": torch.tensor(-2.5), "empty": torch.zeros(0, 5), "row": base[3:4]}
nested = {"model": {"wte.weight": torch.nn.Parameter(base), "tied": base}, "list": [torch.ones(2), {"deep": torch.zeros(1)}], 7: torch.full((2,), 0.5),
          "step": 12, "big": 2**70, "lr": 1e-3, "name": "a\x1b[31mred", "none": None, "flags": (True, False), "set": {3}, "bytes": b"\0\1",
          "args": argparse.Namespace(hidden=8, path="x"), "level": Level.LOW, "size": torch.Size([2, 3]), "dtype": torch.bfloat16,
          "numpy": numpy.arange(6, dtype=numpy.float32).reshape(2, 3), "numpy_t": numpy.asfortranarray(numpy.arange(6, dtype=numpy.int64).reshape(2, 3)),
          "number": numpy.float64(0.25), "counter": collections.Counter(a=2)}
nested_tensors = [("model.wte.weight", base), ("model.tied", base), ("list.0", torch.ones(2)), ("list.1.deep", torch.zeros(1)),
                  ("7", torch.full((2,), 0.5)), ("numpy", torch.arange(6, dtype=torch.float32).reshape(2, 3)),
                  ("numpy_t", torch.arange(6).reshape(2, 3))]


def save(file, value, tensors, **options):
    torch.save(value, os.path.join(folder, file), **options)
    expect(file, tensors)


save("every.pt", every, list(every.items()))
save("views.pt", views, list(views.items()))
save("views_legacy.pt", views, list(views.items()), _use_new_zipfile_serialization=False)
save("nested.pt", nested, nested_tensors)
save("nested_legacy.pt", nested, nested_tensors, _use_new_zipfile_serialization=False)
save("nested_protocol5.pt", nested, nested_tensors, pickle_protocol=5)
save("tensor.pt", base, [("tensor", base)])
module = Module()
save("module.pt", module, [("_modules.fc._parameters.weight", module.fc.weight), ("_modules.fc._parameters.bias", module.fc.bias)])
save("evil.pt", {"weight": torch.ones(2), "payload": Evil()}, [("weight", torch.ones(2))])
with open(os.path.join(folder, "evil.pkl"), "wb") as file:
    pickle.dump([Evil(), {"a": 1}], file, protocol=4)
u16 = torch.tensor([1, 300], dtype=torch.uint16)
save("unsigned.pt", {"u16": u16}, [("u16", u16)])

array = numpy.arange(6, dtype="<f4").reshape(2, 3)
numpy.save(os.path.join(folder, "array.npy"), array)
expect("array.npy", [("array", torch.from_numpy(array))])
numpy.save(os.path.join(folder, "columns.npy"), numpy.asfortranarray(array))
expect("columns.npy", [("array", torch.from_numpy(array))])
numpy.savez(os.path.join(folder, "arrays.npz"), a=array, b=numpy.array(3, dtype="<i8"))
expect("arrays.npz", [("a", torch.from_numpy(array)), ("b", torch.tensor(3))])
numpy.savez_compressed(os.path.join(folder, "packed.npz"), a=array)
numpy.save(os.path.join(folder, "big_endian.npy"), array.astype(">f4"))
save_file(every, os.path.join(folder, "every.safetensors"))
with open(os.path.join(folder, "every.safetensors"), "rb") as file:
    length = struct.unpack("<Q", file.read(8))[0]
    import json
    header = {k: v for k, v in json.loads(file.read(length)).items() if k != "__metadata__"}
expect("every.safetensors", [(name, every[name]) for name in sorted(header, key=lambda n: header[n]["data_offsets"])])
