"""torchvision's ``ImageFolder`` in a DataLoader; ``how`` is its loader: ``pillow``, the default, or ``torchvision``."""

import torch
from decoding import crop_image, crop_pixels
from map_style import epochs_of
from PIL import Image
from reading import Epochs, Job, serve_epochs
from torchvision.datasets import ImageFolder
from torchvision.io import decode_image


def open_epochs(job: Job) -> Epochs:
    """Read the files where they are; their labels become their numbers."""

    def crop_opened(image: Image.Image) -> torch.Tensor:
        return crop_image(image, job)

    def crop_decoded(pixels: torch.Tensor) -> torch.Tensor:
        return crop_pixels(pixels.permute(1, 2, 0), job)

    if job.how == "pillow":
        dataset = ImageFolder(job.data, crop_opened)
    else:
        dataset = ImageFolder(job.data, crop_decoded, loader=decode_image)
    dataset.samples = [(path, row) for row, (path, _) in enumerate(dataset.samples)]
    return epochs_of(dataset, job)


if __name__ == "__main__":
    serve_epochs(["torchvision", "torch", "pillow"], open_epochs)
