"""Checks checkpoints with the reader of docs/CHECKPOINT-FORMAT.md, and writes some by that page alone.

read PAGE DIR [TAG]             verifies everything, compares the members with the page's tables; prints TAG and step
hashes DIR FILE                 the tensors are those of the last step in a run's hashes.jsonl, which says what Shoal had
chunks DIR                      the largest file has several hashes
find DIR                        prints the name of the folder that is meant
rewrite DIR NEW                 the same checkpoint as another program would write it: tag `mine`, a file per tensor
poke DIR KIND TENSOR ELEMENT    changes the lowest bit of an fp32 element of the latest checkpoint
cut DIR NAME BYTES              cuts a file of the latest checkpoint
seal DIR                        hashes the latest checkpoint's manifest anew, which was edited
"""
import json, os, re, struct, sys

sys.dont_write_bytecode = True
sys.path.insert(0, ".")
from read_checkpoint import CHUNK, MASK, find, open_checkpoint, xxh3

TYPES = {"string": str, "integer": int, "number": (int, float), "object": dict, "list": list}


def fail(text):
    sys.exit("checkpoint_format.py: " + text)


def tables(page):
    """{"kind": {key: (type's first word, may be missing)}} of the tables headed `key of the KIND`"""
    result, current = {}, None
    for line in open(page):
        head = re.match(r"\| key of (?:the |a )?([a-z ]+) \| type ", line)
        if head:
            current = result.setdefault(head.group(1), {})
        elif not line.startswith("|"):
            current = None
        row = current is not None and re.match(r"\| `(\w+)` \| (\w+)([^|]*)\|", line)
        if row:
            current[row.group(1)] = (row.group(2), "missing" in row.group(3))
    return result


def compare_members(what, value, table):
    for key in value:
        if key not in table:
            fail("%s has `%s`, which the page does not tell of" % (what, key))
        if not isinstance(value[key], TYPES[table[key][0]]) or isinstance(value[key], bool):
            fail("%s: `%s` is no %s" % (what, key, table[key][0]))
    for key, (_, may_miss) in table.items():
        if key not in value and not may_miss:
            fail("%s lacks `%s`" % (what, key))


def kinds_of_page(page):
    """{"exp_avg": ["F32"]}: the table headed `kind | dtype`"""
    rows = re.findall(r"^\| (.*?) \| (.*?) \|", page[page.index("| kind | dtype |"):].split("\n\n")[0], re.M)
    return {name: re.findall(r"`(\w+)`", dtypes) for names, dtypes in rows for name in re.findall(r"`(\w+)`", names)}


def read(page, directory, tag=None):
    folder, manifest, kinds = open_checkpoint(directory, tag)
    text, table = open(page).read(), tables(page)
    compare_members("the manifest", manifest, table["manifest"])
    compare_members("engine", manifest["engine"], table["engine"])
    compare_members("loss_scaler", manifest["engine"]["loss_scaler"], table["loss scaler"])
    if "client" in manifest:
        compare_members("client", manifest["client"], table["client"])
        for key in manifest["client"]["model"]:
            if "`%s`" % key not in text:
                fail("the model's option %s is not on the page" % key)
    for kind in manifest["kinds"]:
        compare_members("a kind", kind, table["kind"])
        for file in kind["files"]:
            compare_members("a file", file, table["file"])
        if kind["dtype"] not in kinds_of_page(text).get(kind["name"], []):
            fail("the page has no kind %s of %s" % (kind["name"], kind["dtype"]))
    for file in manifest.get("files", []):
        compare_members("a companion", file, table["companion"])
        data = open(os.path.join(folder, file["name"]), "rb").read()
        if len(data) != file["bytes"] or (len(data) > 240 and xxh3(data) != file["hash"]):
            fail("%s is not as the manifest says" % file["name"])
    for tensor in manifest["tensors"]:
        compare_members("a tensor", tensor, table["tensor"])
        name = re.sub(r"^transformer\.(h\.\d+\.)?", "", tensor["name"])
        if "`%s`" % name not in text and "`transformer.%s`" % name not in text:
            fail("the page does not name %s" % tensor["name"])
    names = {tensor["name"] for tensor in manifest["tensors"]}
    if not all(primary in names and alias not in names for alias, primary in manifest["aliases"].items()):
        fail("the aliases are not further names of tensors")
    if manifest["step"] != manifest["engine"]["global_steps"]:
        fail("two steps")
    compare_rounded(kinds)
    compare_index(folder, manifest)
    print(os.path.basename(folder), manifest["step"])


def compare_rounded(kinds):
    """16-bit weights are the masters, rounded to nearest even."""
    if "master" not in kinds:
        return
    for (name, dtype, _, low), (_, _, _, master) in zip(kinds["model"], kinds["master"]):
        got = struct.unpack("<%dH" % (len(low) // 2), low)
        bits = struct.unpack("<%dI" % (len(master) // 4), master)
        if dtype == "BF16":
            want = [bit + 0x7FFF + (bit >> 16 & 1) >> 16 for bit in bits]
        else:
            count = len(bits)
            want = struct.unpack("<%dH" % count, struct.pack("<%de" % count, *struct.unpack("<%df" % count, master)))
        if list(got) != list(want):
            fail("`%s` in %s is not its master rounded" % (name, dtype))


def compare_index(folder, manifest):
    index = json.load(open(os.path.join(folder, "model.safetensors.index.json")))
    files = [file["name"] for kind in manifest["kinds"] if kind["name"] == "model" for file in kind["files"]]
    if set(index["weight_map"]) != {tensor["name"] for tensor in manifest["tensors"]} or \
            not set(index["weight_map"].values()) <= set(files):
        fail("the index is of other tensors or files")


def mix(x):
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def fingerprint(data):
    """The hash of src/monitor/hashes.h: of all (index, bits), in any order."""
    return sum(mix(mix(i + 0x9E3779B97F4A7C15 & MASK) ^ (bits * 0xD1B54A32D192ED03 & MASK))
               for i, (bits,) in enumerate(struct.iter_unpack("<I", data))) & MASK


def hashes(directory, path):
    _, manifest, kinds = open_checkpoint(directory)
    said = {(line["kind"], line["tensor"]): line["hash"] for line in map(json.loads, open(path))
            if "kind" in line and line["step"] == manifest["step"]}
    compared = 0
    for kind, tensors in kinds.items():
        if tensors[0][1] != "F32":
            continue
        name = "weight" if kind in ("model", "master") else kind
        for tensor, _, _, data in tensors:
            if said.get((name, tensor)) != "%016x" % fingerprint(data):
                fail("%s `%s`: Shoal's hash is %s, the file's %016x" % (kind, tensor, said.get((name, tensor)), fingerprint(data)))
            compared += 1
    print("%d tensors" % compared)


def chunks(directory):
    _, manifest, _ = open_checkpoint(directory)
    files = [file for kind in manifest["kinds"] for file in kind["files"]]
    largest = max(files, key=lambda file: file["bytes"])
    if largest["bytes"] <= CHUNK or len(largest["chunks"]) != -(-largest["bytes"] // CHUNK):
        fail("one chunk")
    print("%d chunks" % len(largest["chunks"]))


def safetensors(tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, dtype, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 4096)
    return struct.pack("<Q", len(text)) + text + b"".join(data for _, _, _, data in tensors)


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)


def write_checkpoint(folder, manifest, kinds, per_file):
    """Only what the page says must be there; members in another order, and spaces between them."""
    os.makedirs(folder, exist_ok=True)
    manifest = {key: manifest[key] for key in sorted(manifest) if key != "hash"}
    for kind in manifest["kinds"]:
        tensors = kinds[kind["name"]]
        cut = [tensors[at:at + per_file] for at in range(0, len(tensors), per_file)]
        kind["files"] = []
        for n, part in enumerate(cut):
            name = "%s-%05d-of-%05d.safetensors" % (kind["name"], n + 1, len(cut))
            data = safetensors(part)
            write(os.path.join(folder, name), data)
            kind["files"].append({"name": name, "bytes": len(data),
                                  "chunks": [xxh3(data[at:at + CHUNK]) for at in range(0, len(data), CHUNK)]})
    text = json.dumps(manifest, indent=1).encode()[:-1].rstrip()
    write(os.path.join(folder, "manifest.json"), text + b',"hash":"%s"}\n' % xxh3(text).encode())


def rewrite(directory, new):
    _, manifest, kinds = open_checkpoint(directory)
    manifest["engine"]["note"] = "a member that no reader knows"
    manifest["kinds"].append({"name": "note", "dtype": "F32"})
    kinds["note"] = [(name, "F32", shape, bytes(4 * count(shape))) for name, _, shape, _ in kinds["model"]]
    write_checkpoint(os.path.join(new, "mine"), manifest, kinds, 1)
    write(os.path.join(new, "latest"), b"mine\n")


def count(shape):
    elements = 1
    for dim in shape:
        elements *= dim
    return elements


def poke(directory, kind, tensor, element):
    folder, manifest, kinds = open_checkpoint(directory)
    for i, (name, dtype, shape, data) in enumerate(kinds[kind]):
        if name == tensor:
            data = bytearray(data)
            data[4 * int(element)] ^= 1
            kinds[kind][i] = (name, dtype, shape, bytes(data))
    write_checkpoint(folder, manifest, kinds, len(manifest["tensors"]))


def seal(directory):
    path = os.path.join(directory, open(os.path.join(directory, "latest")).read().strip(), "manifest.json")
    text = open(path, "rb").read()[:-28]
    write(path, text + b',"hash":"%s"}\n' % xxh3(text).encode())


def cut(directory, name, size):
    folder, _ = find(directory)
    with open(os.path.join(folder, name), "rb+") as file:
        file.truncate(int(size))


def say_found(directory):
    print(os.path.basename(find(directory)[0]))


COMMANDS = {"read": read, "hashes": hashes, "chunks": chunks, "find": say_found, "rewrite": rewrite, "poke": poke, "cut": cut,
            "seal": seal}
try:
    COMMANDS[sys.argv[1]](*sys.argv[2:])
except (OSError, ValueError) as error:
    fail(str(error))
