#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Quantises reference checkpoints: quantise.py CHECKPOINTS OUT FORMAT[,FORMAT…] FAMILY…

Each CHECKPOINTS/FAMILY becomes OUT/FAMILY-FORMAT with the tensors, names and configuration of a published checkpoint in that format, and
ref.safetensors: the logits of transformers in float32 on the dequantised weights, for the prompts of the unquantised reference.
Embeddings, heads, norms, convolutions, routers, gates, vision towers and draft heads stay as they are.

    fp8-block   e4m3, float32 of 128x128 blocks (weight_scale_inv)        fp8-bf16     the same, scales in bfloat16
    fp8-static  e4m3, one scale a tensor (weight_scale_inv), static       fp8-tensor   ModelOpt FP8, described in hf_quant_config.json
    fp8-row     compressed-tensors float-quantized, one scale a row       v4           e4m3 and experts in e2m1, scales of powers of two (.scale); of deepseek_v4
    nvfp4       ModelOpt NVFP4: weight_scale_2 multiplies                 nvfp4-ct     compressed-tensors: weight_global_scale divides
    mixed       ModelOpt MIXED_PRECISION: experts and mlps NVFP4, else FP8
    mxfp4       gpt_oss: experts in _blocks and _scales                   mxfp4-ct     compressed-tensors
    int4        compressed-tensors pack-quantized, groups of 32           awq, gptq    with zero points, groups of 32

Needs torch, transformers and safetensors.
"""
import json, os, re, shutil, sys, tempfile

import torch
from safetensors.torch import load_file, save_file

E4M3 = torch.float8_e4m3fn
STAYS = re.compile(r'embed|norm|conv|router|(^|\.)(gate|shared_expert_gate|lm_head|head|in_proj_[ab]|in_proj_ba|g_proj|b_proj|weights_proj|wk|visual|'
                   r'vision_tower|vision_model|vit_large_projector|mtp|eh_proj|hc_\w+|compressor|indexer|per_layer\w*)\.|layer_scalar|projector')
GRID = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6])


def blocks(w, rows, cols):
    """The largest |w| of each block, and a function that spreads such an array over w's shape."""
    n, k = w.shape
    p = torch.nn.functional.pad(w, (0, -k % cols, 0, -n % rows)).reshape(-(-n // rows), rows, -(-k // cols), cols)
    most = p.abs().amax((1, 3)).clamp(min=1e-8)
    return most, lambda s: s.repeat_interleave(rows, 0)[:n].repeat_interleave(cols, 1)[:, :k]


def codes(x):
    """e2m1 codes of values."""
    near = (x.abs().unsqueeze(-1) - GRID).abs().argmin(-1)
    return (near + 8 * (x < 0)).to(torch.uint8)


def value(c):
    return torch.where(c >= 8, -GRID[(c & 7).long()], GRID[(c & 7).long()])


def pair(c):
    """Two codes to a byte, the first in the low half."""
    return (c[..., 0::2] | c[..., 1::2] << 4).contiguous()


def fp8(w, rows, cols, dtype):
    most, spread = blocks(w, rows, cols)
    scale = (most / 448).to(dtype)
    if dtype == torch.float8_e8m0fnu:
        scale = torch.exp2(torch.ceil(torch.log2(most / 448))).to(dtype)
    s = spread(scale.float())
    q = (w / s).clamp(-448, 448).to(E4M3)
    return q, scale, q.float() * s


def nvfp4(w, divides):
    most, spread = blocks(w, 1, 16)
    top = most.max() / (6 * 448)
    overall = 1 / top if divides else top
    unit = 1 / overall if divides else overall
    scale = (most / 6 / unit).to(E4M3)
    s = spread(scale.float())
    c = codes(torch.where(s > 0, w / (s * unit), torch.zeros(())))
    back = value(c) * s
    return pair(c), scale, overall.reshape(()), back / overall if divides else back * overall


def mxfp4(w):
    most, spread = blocks(w, 1, 32)
    e = torch.floor(torch.log2(most)) - 2
    s = spread(torch.exp2(e))
    c = codes(w / s)
    return pair(c), (e + 127).to(torch.uint8), value(c) * s


def int4(w):
    most, spread = blocks(w, 1, 32)
    scale = (most / 7).bfloat16()
    s = spread(scale.float())
    c = (w / s).round().clamp(-8, 7).to(torch.int32)
    u = c + 8
    packed = sum(u[:, i::8] << 4 * i for i in range(8)).to(torch.int32)
    return packed, scale, c.float() * s


def columns(w, awq):
    """qweight, qzeros and scales of AWQ or GPTQ."""
    n, k = w.shape
    g = w.reshape(n, k // 32, 32)
    low, high = g.amin(2).clamp(max=0), g.amax(2).clamp(min=0)
    scale = ((high - low) / 15).clamp(min=1e-5).half()
    s = scale.float()
    zero = (-low / s).round().clamp(0 if awq else 1, 15).to(torch.int32)
    q = (g / s[..., None] + zero[..., None]).round().clamp(0, 15).to(torch.int32)
    back = ((q - zero[..., None]).float() * s[..., None]).reshape(n, k)
    order = [0, 2, 4, 6, 1, 3, 5, 7] if awq else list(range(8))
    outputs = lambda x: sum(x[:, c::8] << 4 * i for i, c in enumerate(order)).to(torch.int32)
    q, zero = q.reshape(n, k).T, zero.T
    packed = outputs(q) if awq else sum(q[i::8] << 4 * i for i in range(8)).to(torch.int32)
    return packed, outputs(zero if awq else zero - 1), scale.T, back


def quantise(form, name, w, out):
    """Puts the stored tensors of a weight into out and gives the weight that they mean."""
    module = name.removesuffix('.weight')
    one = lambda x: torch.tensor(float(x))
    if form in ('fp8-block', 'fp8-bf16', 'fp8-static', 'fp8-tensor', 'fp8-row'):
        rows, cols = {'fp8-row': (1, w.shape[1])}.get(form, (128, 128) if form in ('fp8-block', 'fp8-bf16') else w.shape)
        q, s, back = fp8(w, rows, cols, torch.bfloat16 if form == 'fp8-bf16' else torch.float32)
        out[name] = q
        if form in ('fp8-static', 'fp8-tensor'):
            s = s.reshape(())
            out[module + ('.activation_scale' if form == 'fp8-static' else '.input_scale')] = one(0.02)
        out[module + ('.weight_scale' if form in ('fp8-tensor', 'fp8-row') else '.weight_scale_inv')] = s
        return back
    if form == 'v4' and '.experts.' in name:
        q, s, back = mxfp4(w)
        out[name], out[module + '.scale'] = q.view(torch.int8), s.view(torch.float8_e8m0fnu)
        return back
    if form == 'v4':
        out[name], out[module + '.scale'], back = fp8(w, 128, 128, torch.float8_e8m0fnu)
        return back
    if form == 'nvfp4':
        out[name], out[module + '.weight_scale'], out[module + '.weight_scale_2'], back = nvfp4(w, False)
        out[module + '.input_scale'] = one(0.01)
        return back
    if form == 'nvfp4-ct':
        out[module + '.weight_packed'], out[module + '.weight_scale'], g, back = nvfp4(w, True)
        out[module + '.weight_global_scale'], out[module + '.input_global_scale'] = g.reshape(1), torch.tensor([100.0])
        return back
    if form == 'mxfp4-ct':
        out[module + '.weight_packed'], out[module + '.weight_scale'], back = mxfp4(w)
        return back
    if form == 'int4':
        out[module + '.weight_packed'], out[module + '.weight_scale'], back = int4(w)
        out[module + '.weight_shape'] = torch.tensor(w.shape)
        return back
    if form in ('awq', 'gptq'):
        out[module + '.qweight'], out[module + '.qzeros'], out[module + '.scales'], back = columns(w, form == 'awq')
        if form == 'gptq':
            out[module + '.g_idx'] = torch.arange(w.shape[1], dtype=torch.int32) // 32
        return back
    raise SystemExit(f'no format {form}')


def group(bits, typ, strategy, **more):
    return {'group_0': {'targets': ['Linear'], 'weights': dict(num_bits=bits, type=typ, strategy=strategy, symmetric=True, dynamic=False, **more)}}


def describe(form, done, left):
    """What config.json and hf_quant_config.json say."""
    ct = lambda packing, groups: {'quant_method': 'compressed-tensors', 'quantization_status': 'compressed', 'format': packing, 'ignore': left, 'config_groups': groups}
    if form in ('fp8-block', 'fp8-bf16'):
        return {'quant_method': 'fp8', 'activation_scheme': 'dynamic', 'fmt': 'e4m3', 'weight_block_size': [128, 128], 'modules_to_not_convert': left}, None
    if form == 'v4':
        return {'quant_method': 'fp8', 'activation_scheme': 'dynamic', 'fmt': 'e4m3', 'scale_fmt': 'ue8m0', 'weight_block_size': [128, 128]}, None
    if form == 'fp8-static':
        return {'quant_method': 'fp8', 'activation_scheme': 'static', 'weight_block_size': None, 'modules_to_not_convert': left}, None
    if form == 'mxfp4':
        return {'quant_method': 'mxfp4', 'modules_to_not_convert': ['model.layers.*.self_attn', 'model.layers.*.mlp.router', 'model.embed_tokens', 'lm_head']}, None
    if form == 'awq':
        return {'quant_method': 'awq', 'bits': 4, 'group_size': 32, 'zero_point': True, 'version': 'gemm', 'modules_to_not_convert': left}, None
    if form == 'gptq':
        return {'quant_method': 'gptq', 'bits': 4, 'group_size': 32, 'desc_act': False, 'sym': False, 'checkpoint_format': 'gptq'}, None
    if form == 'fp8-tensor':
        return None, {'quant_algo': 'FP8', 'kv_cache_quant_algo': 'FP8', 'exclude_modules': left}
    if form == 'nvfp4':
        return {'quant_method': 'modelopt', 'quant_algo': 'NVFP4', 'ignore': left, 'kv_cache_scheme': {'type': 'float', 'num_bits': 8, 'dynamic': False}}, None
    if form == 'mixed':
        layers = {m: {'quant_algo': a, 'group_size': 16} if a == 'NVFP4' else {'quant_algo': a} for m, a in done.items()}
        return {'quant_method': 'modelopt', 'quant_algo': 'MIXED_PRECISION', 'quantized_layers': layers, 'ignore': []}, None
    if form == 'fp8-row':
        return ct('float-quantized', group(8, 'float', 'channel')), None
    if form == 'nvfp4-ct':
        return ct('nvfp4-pack-quantized', group(4, 'float', 'tensor_group', group_size=16, scale_dtype='torch.float8_e4m3fn')), None
    if form == 'mxfp4-ct':
        return ct('mxfp4-pack-quantized', group(4, 'float', 'group', group_size=32, scale_dtype='torch.uint8')), None
    return ct('pack-quantized', group(4, 'int', 'group', group_size=32)), None


def split(form, tensors):
    """The stored tensors, the weights that they mean, the quantised modules, and the matrices that stay."""
    out, back, done, left = {}, {}, {}, []
    for name, t in sorted(tensors.items()):
        w, module = t.float(), name.removesuffix('.weight')
        if form == 'mxfp4':
            if re.search(r'mlp\.experts\.(gate_up|down)_proj$', name):  # [experts, in, out]
                parts = [mxfp4(m) for m in w.transpose(1, 2)]
                q, s, b = (torch.stack(p) for p in zip(*parts))
                out[name + '_blocks'], out[name + '_scales'] = q.reshape(*s.shape, 16), s
                back[name] = b.transpose(1, 2).contiguous()
            else:
                out[name], back[name] = t, w
            continue
        if t.dim() != 2 or not name.endswith('.weight') or STAYS.search(name) or t.shape[1] % 32:
            out[name], back[name] = t, w
            if t.dim() == 2 and name.endswith('.weight'):
                left.append(module)
            continue
        own = form
        if form == 'mixed':
            own = 'nvfp4' if re.search('mlp|expert|feed_forward|ffn', name) else 'fp8-tensor'
        back[name] = quantise(own, name, w, out)
        done[module] = 'NVFP4' if own == 'nvfp4' else 'FP8'
    for layer in {re.sub(r'\.k_proj$', '', m) for m in done if m.endswith('k_proj')} if form == 'nvfp4' else ():
        out[layer + '.k_proj.k_scale'], out[layer + '.v_proj.v_scale'] = torch.tensor(0.01), torch.tensor(0.02)
    return out, back, done, left


def reference(folder, ref):
    """transformers' logits for the prompts of ref."""
    import transformers
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    config = json.load(open(os.path.join(folder, 'config.json')))
    order = ['AutoModelForCausalLM', 'AutoModelForImageTextToText']
    if 'text_config' in config:
        order.reverse()
    for auto in order:
        try:
            model = getattr(transformers, auto).from_pretrained(folder, dtype=torch.float32, attn_implementation='eager').float().eval()
            break
        except (ValueError, KeyError) as e:
            fault = e
    else:
        raise fault
    out = {}
    with torch.no_grad():
        logits = lambda ids: model(input_ids=ids, use_cache=False).logits[0].float()
        for which in ('long', 'short'):
            ids = ref[which + '.input_ids']
            out[which + '.input_ids'], out[which + '.logits'] = ids, logits(ids)
            greedy, margins = [], []
            for _ in range(len(ref[which + '.greedy'])):
                top = torch.topk(logits(ids)[-1], 2)
                greedy.append(int(top.indices[0]))
                margins.append(float(top.values[0] - top.values[1]))
                ids = torch.cat([ids, torch.tensor([[greedy[-1]]])], 1)
            out[which + '.greedy'], out[which + '.greedy_margin'] = torch.tensor(greedy), torch.tensor(margins)
    return out


def make(source, target, form):
    tensors = load_file(os.path.join(source, 'model.safetensors'))
    stored, back, done, left = split(form, tensors)
    os.makedirs(target, exist_ok=True)
    config = json.load(open(os.path.join(source, 'config.json')))
    with tempfile.TemporaryDirectory() as plain:
        json.dump(config, open(os.path.join(plain, 'config.json'), 'w'))
        save_file({k: v.contiguous() for k, v in back.items()}, os.path.join(plain, 'model.safetensors'), metadata={'format': 'pt'})
        ref = reference(plain, load_file(os.path.join(source, 'ref.safetensors')))
    config['quantization_config'], hf = describe(form, done, left)
    if form == 'v4':
        config['expert_dtype'] = 'fp4'
    if hf is not None:
        del config['quantization_config']
        with open(os.path.join(target, 'hf_quant_config.json'), 'w') as f:
            json.dump({'producer': {'name': 'modelopt', 'version': '0.46.0'}, 'quantization': hf}, f, indent=1)
    with open(os.path.join(target, 'config.json'), 'w') as f:
        json.dump(config, f, indent=1)
    save_file({k: v.contiguous() for k, v in stored.items()}, os.path.join(target, 'model.safetensors'), metadata={'format': 'pt'})
    save_file({k: v.contiguous() for k, v in ref.items()}, os.path.join(target, 'ref.safetensors'), metadata={'format': 'pt'})
    for name in ('generation_config.json', 'tokenizer.json', 'tokenizer_config.json'):
        if os.path.exists(os.path.join(source, name)):
            shutil.copy(os.path.join(source, name), target)
    changed = max(float((back[k] - tensors[k].float()).abs().max() / tensors[k].float().abs().max()) for k in tensors)
    print(f'{os.path.basename(target)}: {len(done) or "experts of all layers"} quantised, {len(stored)} tensors, largest change {changed:.3f} of the largest weight', flush=True)


def main(folder, out, forms, families):
    for family in families:
        for form in forms.split(','):
            make(os.path.join(folder, family), os.path.join(out, f'{family}-{form}'), form)


main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
