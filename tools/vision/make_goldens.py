#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Writes internal/vision/testdata: what Pillow and transformers make of pictures.

    make_goldens.py            needs torch, transformers, pillow (any recent version)

  resize.txt   width height new-width new-height sha256       of Image.resize(…, BICUBIC) of the noise that noise() makes
  sizes.txt    height width factor min max → height width     of smart_resize
  process.txt  width height, processor, grid, sha256          of pixel_values (float32) of Qwen2VLImageProcessorPil
  files/*      small pictures of every kind, with NAME.png of what the processor's convert_to_rgb sees, turned by EXIF
"""
import hashlib, json, os, random, shutil
import numpy as np
import PIL
from PIL import Image, ImageOps
import transformers
from transformers.image_transforms import convert_to_rgb
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil, smart_resize

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'internal', 'vision', 'testdata')


def noise(width, height, smooth):
    """Bytes of a linear congruential generator; smooth adds them to a ramp, as pictures are."""
    n, x = 3 * width * height, np.uint32(width * 65536 + height)
    out = np.empty(n, np.uint8)
    v = int(x)
    for i in range(n):
        v = (v * 1664525 + 1013904223) & 0xffffffff
        out[i] = v >> 24
    img = out.reshape(height, width, 3)
    if smooth:
        ramp = (np.arange(width)[None, :, None] * 3 + np.arange(height)[:, None, None] * 2) & 255
        img = ((ramp + (img >> 4)) & 255).astype(np.uint8)
    return img


def sha(a):
    return hashlib.sha256(np.ascontiguousarray(a).tobytes()).hexdigest()


def resize():
    random.seed(1)
    sizes = [(8, 8, 8, 8), (7, 5, 14, 10), (7, 5, 3, 2), (1, 1, 9, 4), (9, 4, 1, 1), (64, 48, 33, 17), (100, 3, 20, 40), (3, 100, 64, 31), (50, 50, 50, 20), (50, 50, 20, 50),
             (320, 240, 96, 96), (31, 17, 640, 352), (500, 2, 7, 8)]
    sizes += [tuple(random.randint(1, 90) for _ in range(4)) for _ in range(40)]
    with open(os.path.join(OUT, 'resize.txt'), 'w') as f:
        for w, h, W, H in sizes:
            for smooth in (0, 1):
                im = Image.fromarray(noise(w, h, smooth))
                print(w, h, smooth, W, H, sha(np.asarray(im.resize((W, H), Image.Resampling.BICUBIC))), file=f)


def sizes():
    random.seed(2)
    with open(os.path.join(OUT, 'sizes.txt'), 'w') as f:
        for i in range(400):
            factor = random.choice([8, 28, 32])
            lo, hi = random.choice([(3136, 1003520), (65536, 16777216), (64, 4096)])
            h, w = random.choice([(random.randint(1, 6000), random.randint(1, 6000)), (random.randint(1, 60), random.randint(1, 60)), (factor * random.randint(1, 40) + factor // 2, factor * random.randint(1, 40))])
            try:
                H, W = smart_resize(h, w, factor, lo, hi)
            except ValueError:
                H, W = 0, 0
            print(h, w, factor, lo, hi, H, W, file=f)


def process():
    configs = {
        'tiny': dict(patch_size=4, temporal_patch_size=2, merge_size=2, size={'shortest_edge': 256, 'longest_edge': 4096}, image_mean=[0.5] * 3, image_std=[0.5] * 3),
        'qwen3_vl': dict(patch_size=16, temporal_patch_size=2, merge_size=2, size={'shortest_edge': 65536, 'longest_edge': 16777216}, image_mean=[0.5] * 3, image_std=[0.5] * 3),
        'clip': dict(patch_size=14, temporal_patch_size=2, merge_size=2, min_pixels=3136, max_pixels=100352),
        'plain': dict(patch_size=4, temporal_patch_size=1, merge_size=1, size={'shortest_edge': 64, 'longest_edge': 4096}, do_normalize=False, rescale_factor=1 / 127.5),
    }
    with open(os.path.join(OUT, 'process.txt'), 'w') as f:
        for name, c in configs.items():
            p = Qwen2VLImageProcessorPil(**c)
            keys = ('patch_size', 'temporal_patch_size', 'merge_size', 'size', 'image_mean', 'image_std', 'do_normalize', 'rescale_factor')
            full = {k: (dict(v) if k == 'size' else v) for k, v in ((k, getattr(p, k)) for k in keys)}
            full['size'] = {k: v for k, v in full['size'].items() if v is not None}
            for w, h in ((61, 37), (16, 16), (200, 9), (300, 211)):
                if name == 'clip' and w == 200:
                    continue
                out = p(images=[Image.fromarray(noise(w, h, 1))], return_tensors='np')
                print(json.dumps(dict(full, image_processor_type='Qwen2VLImageProcessor')), '|', w, h, *out['image_grid_thw'][0], sha(out['pixel_values'].astype(np.float32)), file=f)


def files():
    d = os.path.join(OUT, 'files')
    shutil.rmtree(d, ignore_errors=True)
    os.makedirs(d)
    rgb = Image.fromarray(noise(37, 29, 1))
    alpha = Image.fromarray(noise(37, 29, 0)[:, :, 0])
    rgba = rgb.copy()
    rgba.putalpha(alpha)
    exif = Image.Exif()
    gray16 = Image.fromarray((noise(37, 29, 1)[:, :, 0].astype(np.uint16) << 8) | 0x55)
    smooth = rgb.resize((74, 58), Image.Resampling.BICUBIC)
    made = {
        'rgb.png': (rgb, {}), 'rgba.png': (rgba, {}), 'gray.png': (rgb.convert('L'), {}), 'gray_alpha.png': (rgba.convert('LA'), {}), 'palette.png': (rgb.convert('P'), {}),
        'bits.png': (rgb.convert('1'), {}), 'palette_alpha.png': (rgb.quantize(16), dict(transparency=3)), 'rgb.bmp': (rgb, {}), 'rgb.gif': (rgb.quantize(64), {}),
        'lossless.webp': (rgb, dict(lossless=True)), 'lossless_alpha.webp': (rgba, dict(lossless=True, exact=True)), 'lossy.webp': (smooth, dict(quality=90)),
        'photo.jpg': (smooth, dict(quality=90, subsampling=2)), 'full.jpg': (smooth, dict(quality=95, subsampling=0)), 'half.jpg': (smooth, dict(quality=90, subsampling=1)),
        'gray.jpg': (smooth.convert('L'), dict(quality=90)), 'cmyk.jpg': (smooth.convert('CMYK'), dict(quality=95)), 'progressive.jpg': (smooth, dict(quality=90, progressive=True)),
    }
    for o in range(2, 9):
        exif[0x0112] = o
        made[f'turned{o}.jpg'] = (smooth, dict(quality=95, subsampling=0, exif=exif.tobytes()))
    exif[0x0112] = 6
    made['turned6.png'] = (rgb, dict(exif=exif.tobytes()))
    for name, (im, kw) in made.items():
        path = os.path.join(d, name)
        im.save(path, **kw)
        seen = convert_to_rgb(ImageOps.exif_transpose(Image.open(path)), return_numpy=True)
        Image.fromarray(np.asarray(seen)).save(path + '.png', optimize=True)


os.makedirs(OUT, exist_ok=True)
print('pillow', PIL.__version__, 'transformers', transformers.__version__)
resize()
sizes()
process()
files()
