#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Packs reference checkpoints into testdata/tiny: pack.py FIXTURES FAMILY…, or into FOLDER of it: pack.py --into FOLDER FIXTURES FAMILY…
Unpacks one: pack.py --unpack ARCHIVE FOLDER.

Each family becomes FAMILY.tar.gz with config.json, the weights, the tokenizer and ref.safetensors (transformers' float32 logits).
Quantised ones (quantise.py) go into the folder quantised.
Numbers lie by planes, since only their high bytes compress: of a safetensors file NAME.planes2 (weights) or NAME.planes4 (logits) holds

    length and header | byte 0 of every 2 (4) bytes | byte 1 of every 2 (4) | … | the bytes that are left

Of the reference, hidden states and greedy logits stay out: no test reads them. The archives are reproducible: no names, no times.
"""
import gzip, io, json, os, struct, sys, tarfile

KEEP = ('config.json', 'hf_quant_config.json', 'generation_config.json', 'model.safetensors', 'model-mtp.safetensors', 'model.safetensors.index.json',
        'ref.safetensors', 'tokenizer.json', 'tokenizer_config.json')


def trim(data):
    """A safetensors file without the arrays that no test reads."""
    n = struct.unpack('<Q', data[:8])[0]
    head, body, kept = json.loads(data[8:8 + n]), data[8 + n:], b''
    for name in list(head):
        if '.hidden.' in name or name.endswith('.greedy_logits'):
            del head[name]
        elif name != '__metadata__':
            a, b = head[name]['data_offsets']
            head[name]['data_offsets'] = [len(kept), len(kept) + b - a]
            kept += body[a:b]
    text = json.dumps(head, separators=(',', ':')).encode()
    text += b' ' * (-len(text) % 8)
    return struct.pack('<Q', len(text)) + text + kept


def planes(data, width):
    """The bytes after a safetensors header, plane by plane."""
    head = 8 + struct.unpack('<Q', data[:8])[0]
    body, whole = data[head:], (len(data) - head) // width * width
    return data[:head] + b''.join(body[i:whole:width] for i in range(width)) + body[whole:]


def joined(data, width):
    """Undoes planes."""
    head = 8 + struct.unpack('<Q', data[:8])[0]
    body, n = bytearray(data[head:]), (len(data) - head) // width
    for i in range(width):
        body[i:n * width:width] = data[head + i * n:head + (i + 1) * n]
    return data[:head] + bytes(body)


def unpack(archive, folder):
    with tarfile.open(archive) as tar:
        for info in tar:
            name, data = info.name, tar.extractfile(info).read()
            stem, _, width = name.rpartition('.planes')
            if stem:
                name, data = stem, joined(data, int(width))
            with open(os.path.join(folder, os.path.basename(name)), 'wb') as f:
                f.write(data)


def main(folder, fixtures, families):
    out = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'testdata', 'tiny', folder)
    os.makedirs(out, exist_ok=True)
    for family in families:
        raw = io.BytesIO()
        with tarfile.open(fileobj=raw, mode='w', format=tarfile.USTAR_FORMAT) as tar:
            for name in KEEP:
                path = os.path.join(fixtures, family, name)
                if os.path.exists(path):
                    data = open(path, 'rb').read()
                    if name == 'ref.safetensors':
                        data = trim(data)
                    if name.endswith('.safetensors'):
                        width = 4 if name == 'ref.safetensors' else 2
                        name, data = f'{name}.planes{width}', planes(data, width)
                    info = tarfile.TarInfo(name)
                    info.size, info.mode = len(data), 0o644
                    tar.addfile(info, io.BytesIO(data))
        with open(os.path.join(out, family + '.tar.gz'), 'wb') as f, gzip.GzipFile(fileobj=f, mode='wb', filename='', mtime=0, compresslevel=9) as z:
            z.write(raw.getvalue())


if __name__ == '__main__':
    folder = ''
    if sys.argv[1] == '--unpack':
        unpack(*sys.argv[2:])
        sys.exit()
    if sys.argv[1] == '--into':
        folder = sys.argv[2]
        del sys.argv[1:3]
    main(folder, sys.argv[1], sys.argv[2:])
