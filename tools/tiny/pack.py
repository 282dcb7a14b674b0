#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Packs reference checkpoints into testdata/tiny: pack.py FIXTURES FAMILY…, or into FOLDER of it: pack.py --into FOLDER FIXTURES FAMILY…

Each family becomes FAMILY.tar.gz with config.json, the weights, the tokenizer and ref.safetensors (transformers' float32 logits).
Quantised ones (quantise.py) go into the folder quantised.
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
                    info = tarfile.TarInfo(name)
                    info.size, info.mode = len(data), 0o644
                    tar.addfile(info, io.BytesIO(data))
        with open(os.path.join(out, family + '.tar.gz'), 'wb') as f, gzip.GzipFile(fileobj=f, mode='wb', filename='', mtime=0, compresslevel=9) as z:
            z.write(raw.getvalue())


folder = ''
if sys.argv[1] == '--into':
    folder = sys.argv[2]
    del sys.argv[1:3]
main(folder, sys.argv[1], sys.argv[2:])
