# SPDX-License-Identifier: MIT OR Apache-2.0
"""Writes a trained demo model as Hugging Face checkpoints: bf16, fp8 (128x128 blocks) and nvfp4 (modelopt's layout), each with its card.

    export.py work/ --out checkpoints/                            # checkpoints/{bf16,fp8,nvfp4}/
    export.py --pack work/ bf16.tar.xz                            # the bf16 form and the figures of its card, compressed
    export.py bf16.tar.xz --out checkpoints/ --forms fp8 nvfp4    # any form from that, bit by bit the same

work/ has model.pt of train.py, or model.safetensors of a bf16 checkpoint."""
import argparse, io, json, os, re, shutil, sys, tarfile, tempfile

import torch
from safetensors.torch import load_file, save_file

from model import Model
from model_config import CONFIG

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'tiny'))
import pack as planes

E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
# Kept in bf16, as published checkpoints do: embeddings, norms, the router, small projections, convolutions, the draft layer's entry.
KEPT = ('embed_tokens', 'norm', 'mlp.gate.weight', 'shared_expert_gate', 'in_proj_a', 'in_proj_b', 'conv1d', 'A_log', 'dt_bias', 'mtp.fc')


def quantised(name, w):
    return w.dim() >= 2 and not any(k in name for k in KEPT)


def per_expert(state):
    """Fused expert tensors as one matrix per expert and projection, as quantised checkpoints have them."""
    out = {}
    for name, w in state.items():
        if name.endswith('experts.gate_up_proj'):
            for e, m in enumerate(w):
                out[name.replace('gate_up_proj', f'{e}.gate_proj.weight')], out[name.replace('gate_up_proj', f'{e}.up_proj.weight')] = m.chunk(2)
        elif name.endswith('experts.down_proj'):
            for e, m in enumerate(w):
                out[name.replace('down_proj', f'{e}.down_proj.weight')] = m
        else:
            out[name] = w
    return out


def fp8_block(w):
    """E4M3 [N, K] and the float32 multiplier of each 128x128 block."""
    n, k = w.shape
    p = torch.zeros((n + 127) // 128 * 128, (k + 127) // 128 * 128)
    p[:n, :k] = w
    b = p.view(p.shape[0] // 128, 128, p.shape[1] // 128, 128)
    scale = b.abs().amax((1, 3)).clamp(min=1e-12) / 448
    q = (b / scale[:, None, :, None]).to(torch.float8_e4m3fn)
    return q.view(p.shape)[:n, :k].contiguous(), scale


def fp8_decode(q, scale):
    s = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)[:q.shape[0], :q.shape[1]]
    return q.float() * s


def nvfp4(w):
    """E2M1 pairs [N, K/2], E4M3 scales [N, K/16], and the float32 multiplier of the matrix."""
    n, k = w.shape
    scale2 = w.abs().max().clamp(min=1e-12) / (6 * 448)
    g = w.view(n, k // 16, 16)
    scale = (g.abs().amax(-1) / 6 / scale2).to(torch.float8_e4m3fn)
    x = g / (scale.float() * scale2).clamp(min=1e-30)[..., None]
    code = (x.abs()[..., None] - E2M1).abs().argmin(-1) + 8 * (x < 0)
    code = code.view(n, k).to(torch.uint8)
    return code[:, 0::2] | code[:, 1::2] << 4, scale, scale2


def nvfp4_decode(q, scale, scale2):
    code = torch.stack((q & 15, q >> 4), -1).flatten(-2).long()
    v = E2M1[code & 7] * torch.where(code > 7, -1.0, 1.0)
    return (v.view(*scale.shape, 16) * scale.float()[..., None] * scale2).flatten(-2)


def load(folder):
    """The trained weights, as bf16 holds them."""
    path = os.path.join(folder, 'model.pt')
    state = torch.load(path, map_location='cpu') if os.path.exists(path) else load_file(os.path.join(folder, 'model.safetensors'))
    return rounded(state, 'bf16')


def rounded(state, form):
    """The state dict that a checkpoint of that form stands for, in float32."""
    out = {}
    for name, w in state.items():
        w = w.float()
        if form == 'bf16' or not quantised(name, w):
            out[name] = w.to(torch.bfloat16).float() if not name.endswith('A_log') else w
            continue
        one = lambda m: fp8_decode(*fp8_block(m)) if form == 'fp8' else nvfp4_decode(*nvfp4(m))
        if w.dim() == 3:
            parts = [torch.cat([one(half) for half in m.chunk(2)]) if 'gate_up' in name else one(m) for m in w]
            out[name] = torch.stack(parts)
        else:
            out[name] = one(w)
    return out


def checkpoint(state, form):
    """Tensors and config of a form."""
    config = dict(CONFIG, dtype='bfloat16')
    if form == 'bf16':
        return {n: w if n.endswith('A_log') else w.to(torch.bfloat16) for n, w in state.items()}, config
    out, kept = {}, []
    for name, w in per_expert(state).items():
        if not quantised(name, w):
            out[name] = w if name.endswith('A_log') else w.to(torch.bfloat16)
            if w.dim() == 2 and name.endswith('.weight') and 'norm' not in name:
                kept.append(name.removesuffix('.weight'))
        elif form == 'fp8':
            out[name], out[name + '_scale_inv'] = fp8_block(w.float())
        else:
            out[name], out[name + '_scale'], out[name + '_scale_2'] = nvfp4(w.float())
            out[name.removesuffix('weight') + 'input_scale'] = torch.tensor(1.0)
    if form == 'fp8':
        config['quantization_config'] = {'quant_method': 'fp8', 'fmt': 'e4m3', 'activation_scheme': 'dynamic', 'weight_block_size': [128, 128], 'modules_to_not_convert': sorted(kept)}
    else:
        config['quantization_config'] = {'quant_method': 'modelopt', 'quant_algo': 'W4A16_NVFP4', 'group_size': 16, 'ignore': sorted(kept), 'producer': {'name': 'metrale demo', 'version': '1'}}
    return out, config


def card(folder):
    """CARD.md with its {file.key} filled from the JSON files that the other scripts wrote; what was not measured says so."""
    here = os.path.dirname(os.path.abspath(__file__))
    facts = {}
    for name in ('data', 'train', 'evaluation', 'teacher'):
        path = os.path.join(folder, name + '.json')
        facts[name] = json.load(open(path)) if os.path.exists(path) else {}
    def value(m):
        at = facts
        for key in m[1].split('.'):
            at = at.get(key) if isinstance(at, dict) else at[int(key)] if isinstance(at, list) else None
        return 'not measured' if at is None else ', '.join(map(str, at)) if isinstance(at, list) else f'{at:,}' if isinstance(at, int) else str(at)
    return re.sub(r'\{([a-z]\w*(?:\.\w+)+)\}', value, open(os.path.join(here, 'CARD.md')).read())


def pack(folder, archive):
    """Writes a bf16 checkpoint's folder as a reproducible tar.xz, weights by planes of bytes (tools/tiny/pack.py)."""
    with tarfile.open(archive, 'w:xz', format=tarfile.USTAR_FORMAT, preset=9) as tar:
        for name in ('data.json', 'train.json', 'evaluation.json', 'tokenizer.json', 'tokenizer_config.json', 'generation_config.json', 'model.safetensors'):
            data = open(os.path.join(folder, name), 'rb').read()
            if name == 'model.safetensors':
                name, data = name + '.planes2', planes.planes(data, 2)
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o644
            tar.addfile(info, io.BytesIO(data))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument('trained', help='folder of the trained model, or an archive of --pack')
    ap.add_argument('archive', nargs='?', help='with --pack')
    ap.add_argument('--pack', action='store_true')
    ap.add_argument('--out')
    ap.add_argument('--forms', nargs='+', default=['bf16', 'fp8', 'nvfp4'])
    args = ap.parse_args()
    if args.pack != bool(args.archive) or args.pack == bool(args.out):
        ap.error('either --pack FOLDER ARCHIVE, or FOLDER --out CHECKPOINTS')
    if args.pack:
        return pack(args.trained, args.archive)
    if os.path.isfile(args.trained):
        with tempfile.TemporaryDirectory() as folder:
            planes.unpack(args.trained, folder)
            return export(folder, args.out, args.forms)
    export(args.trained, args.out, args.forms)


def export(trained, out, forms):
    """Checkpoints of the forms, each in its folder of out."""
    state, text = load(trained), card(trained)
    Model().load_state_dict(state)
    for form in forms:
        folder = os.path.join(out, form)
        os.makedirs(folder, exist_ok=True)
        tensors, config = checkpoint(state, form)
        path = os.path.join(folder, 'model.safetensors')
        save_file({n: t.contiguous() for n, t in sorted(tensors.items())}, path, metadata={'format': 'pt'})
        os.chmod(path, 0o644)
        json.dump(config, open(os.path.join(folder, 'config.json'), 'w'), indent=1)
        open(os.path.join(folder, 'README.md'), 'w').write(text)
        for f in ('tokenizer.json', 'tokenizer_config.json', 'generation_config.json'):
            shutil.copy(os.path.join(trained, f), folder)
        print(form, f'{os.path.getsize(path) / 1e6:.1f} MB')


if __name__ == '__main__':
    main()
