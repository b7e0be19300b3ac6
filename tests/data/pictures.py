"""Writes the pictures of the tests, `tests/data/pictures/`, and what torchvision makes of them.

    python tests/data/pictures.py

The same bytes every time, with Pillow 13.0 (libjpeg-turbo 3.2), torchvision 0.26 and numpy of scripts/export/requirements.txt.

`tests/data/pictures.safetensors` holds, for each picture that can be read, torchvision's values before `ToTensor` and
`Normalize`: u8 `[3, height, width]`, which is what those two make floats of. `<path>` is cropped to 32 x 32 after its
shorter side was resized to 37; `<path> HxW of R` is another crop and another shorter side; `<path> normalised` is the
first after `ToTensor` and `Normalize`, f32. A path is relative to the folder.
"""

import shutil
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from torchvision import transforms
from torchvision.transforms import InterpolationMode

DATA = Path(__file__).parent
FOLDER = DATA / "pictures"
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CROP, RESIZE = (32, 32), 37

NORMALISED = ["rings/portrait.png"]
OTHER_CROPS = [
    ("bars/landscape.jpg", (64, 64), 73),
    # Larger than the resized picture: torchvision puts black around it.
    ("bars/small.png", (29, 48), 16),
    ("rings/portrait.png", (40, 33), 20),
]


def picture(height: int, width: int, channels: int, seed: int) -> np.ndarray:
    """Smooth colours, rings that become finer, sharp bars and a little noise: u8 [height, width, channels]."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width] / max(height, width)
    planes = []
    for channel in range(channels):
        phase = 0.7 * channel + seed
        smooth = np.sin(3 * x + phase) * np.cos(4 * y - phase)
        rings = np.sin((90 + 25 * channel) * ((x - 0.3) ** 2 + (y - 0.4) ** 2) + phase)
        bars = np.where((np.floor(x * 17) + np.floor(y * (5 + channel))) % 2 == 0, 1.0, -1.0)
        where = x + y
        plane = np.where(where < 0.6, rings, np.where(where < 1.0, bars, smooth))
        planes.append(127.5 + 90 * plane + 40 * smooth + random.normal(0, 4, plane.shape))
    return np.clip(np.rint(np.stack(planes, -1)), 0, 255).astype(np.uint8)


def coloured(height: int, width: int, seed: int) -> Image.Image:
    return Image.fromarray(picture(height, width, 3, seed))


def write(path: str, image: Image.Image, **options: object) -> None:
    target = FOLDER / path
    target.parent.mkdir(parents=True, exist_ok=True)
    image.save(target, {".png": "PNG"}.get(target.suffix.lower(), "JPEG"), **options)


def write_pictures() -> None:
    write("bars/landscape.jpg", coloured(81, 130, 1), quality=85, subsampling="4:2:0")
    write("bars/UPPER.JPG", coloured(60, 45, 2), quality=95, subsampling="4:4:4")
    write("bars/palette.png", coloured(48, 48, 3).quantize(64))
    write("bars/small.png", coloured(14, 21, 4))
    write("rings/portrait.png", coloured(67, 41, 5))
    write("rings/grey.png", Image.fromarray(picture(50, 63, 1, 6)[..., 0]))
    write("rings/alpha.png", Image.fromarray(picture(40, 57, 4, 7), "RGBA"))
    # A picture that its Exif data would turn: torchvision's `ImageFolder` does not.
    exif = Image.Exif()
    exif[0x0112] = 6
    write("rings/exif.jpeg", coloured(37, 61, 8), quality=90, subsampling="4:2:2", exif=exif)
    write("waves/grey.jpg", Image.fromarray(picture(71, 53, 1, 9)[..., 0]), quality=85)
    write("waves/cmyk.jpg", Image.fromarray(picture(44, 55, 4, 10) // 2, "CMYK"), quality=90)
    write("waves/nested/progressive.jpg", coloured(53, 79, 11), quality=80, progressive=True)
    write_ycck("waves/ycck.jpg", picture(43, 50, 3, 12), picture(43, 50, 1, 13) // 3)
    whole = (FOLDER / "bars/landscape.jpg").read_bytes()
    (FOLDER / "waves/truncated.jpg").write_bytes(whole[: len(whole) * 2 // 3])
    (FOLDER / "waves/empty.jpg").write_bytes(b"")
    (FOLDER / "waves/notes.txt").write_text("Not a picture.\n")


def write_ycck(path: str, colours: np.ndarray, black: np.ndarray) -> None:
    """Pillow writes CMYK only: the planes of YCCK, with the number of the Adobe segment that says which it is."""
    # Pillow inverts what it writes as CMYK; the YCC of YCCK is that of the inverted colours.
    ycc = np.asarray(Image.fromarray(colours).convert("YCbCr"))
    write(path, Image.fromarray(np.concatenate([ycc, black], -1), "CMYK"), quality=92)
    data = bytearray((FOLDER / path).read_bytes())
    adobe = data.index(b"Adobe")
    assert data[adobe + 11] == 0
    data[adobe + 11] = 2
    (FOLDER / path).write_bytes(data)


def prepared(path: str, crop: tuple[int, int], resize: int, last: list[object]) -> torch.Tensor:
    steps = [transforms.Resize(resize, InterpolationMode.BILINEAR, antialias=True), transforms.CenterCrop(crop), *last]
    # As the default loader of torchvision's `ImageFolder` does it.
    with open(FOLDER / path, "rb") as file:
        return transforms.Compose(steps)(Image.open(file).convert("RGB")).contiguous()


def main() -> None:
    torch.set_num_threads(1)
    shutil.rmtree(FOLDER, ignore_errors=True)
    write_pictures()
    levels = [transforms.PILToTensor()]
    tensors = {}
    for file in sorted(FOLDER.rglob("*")):
        path = file.relative_to(FOLDER).as_posix()
        if file.is_dir() or file.name in ("truncated.jpg", "empty.jpg", "notes.txt"):
            continue
        tensors[path] = prepared(path, CROP, RESIZE, levels)
    for path, (height, width), resize in OTHER_CROPS:
        tensors[f"{path} {height}x{width} of {resize}"] = prepared(path, (height, width), resize, levels)
    for path in NORMALISED:
        normalised = [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
        tensors[f"{path} normalised"] = prepared(path, CROP, RESIZE, normalised)
    save_file(tensors, DATA / "pictures.safetensors")


if __name__ == "__main__":
    main()
