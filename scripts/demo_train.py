"""Train a small model on a shardkit data set for two epochs: what a training script looks like.

usage: demo_train.py DATA
"""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Subset

from shardkit import DevicePrefetcher, ShardDataset, collate

EPOCHS = 2
BATCH_SIZE = 64
HELD_OUT = 10  # every tenth sample is for testing


def main(path: str) -> None:
    """Train, and print loss, accuracy and samples per second of each epoch."""
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = ShardDataset(path)
    train, test = split(data)
    model = small_model(len(data.contract.fields["label"].classes)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(EPOCHS):
        started, loss_sum, seen = time.perf_counter(), 0.0, 0
        for batch in DevicePrefetcher(train, device):
            loss = nn.functional.cross_entropy(model(batch["image"]), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss_sum += loss.item() * len(batch["id"])
            seen += len(batch["id"])
        rate = seen / (time.perf_counter() - started)
        print(
            f"epoch {epoch}: loss {loss_sum / seen:.3f}, test accuracy {accuracy(model, test, device):.3f}, "
            f"{rate:,.0f} samples/s",
            flush=True,
        )


def split(data: ShardDataset) -> tuple[DataLoader, DataLoader]:
    """Return a loader of the training samples, shuffled, and one of the test samples."""
    rows = torch.arange(len(data))
    chosen = rows % HELD_OUT != 0
    train, test = Subset(data, rows[chosen].tolist()), Subset(data, rows[~chosen].tolist())
    return (
        DataLoader(
            train, BATCH_SIZE, shuffle=True, num_workers=2, collate_fn=collate, persistent_workers=True
        ),
        DataLoader(test, BATCH_SIZE, num_workers=2, collate_fn=collate, persistent_workers=True),
    )


class Scale(nn.Module):
    """uint8 in [0, 255] to float in [-1, 1]."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return float32[B, C, H, W], plane by plane: batches come channels-last, which is slow on a CPU."""
        return image.to(torch.float32, memory_format=torch.contiguous_format) / 127.5 - 1


def small_model(classes: int) -> nn.Module:
    """Return three convolutions and a linear layer."""
    layers: list[nn.Module] = [Scale()]
    for inputs, outputs in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(64 * 4 * 4, classes))


@torch.inference_mode()
def accuracy(model: nn.Module, loader: DataLoader, device: torch.device) -> float:
    """Return the share of samples whose label the model finds."""
    model.eval()
    right = total = 0
    for batch in DevicePrefetcher(loader, device):
        right += int((model(batch["image"]).argmax(1) == batch["label"]).sum())
        total += len(batch["id"])
    model.train()
    return right / total


if __name__ == "__main__":
    main(sys.argv[1])
