"""ResNet, MobileNetV2 and ConvNeXt as a good PyTorch user writes them, in plain modules, so that PyTorch 1.13 runs them."""
import torch
import torch.nn as nn


def normed(inputs, outputs, size=1, stride=1, groups=1, act=nn.ReLU):
    layers = [nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False), nn.BatchNorm2d(outputs)]
    return layers + ([act(inplace=True)] if act else [])


class Residual(nn.Module):
    def __init__(self, body, shortcut, act):
        super().__init__()
        self.body, self.shortcut, self.act = nn.Sequential(*body), nn.Sequential(*shortcut), act

    def forward(self, x):
        return self.act(self.body(x) + self.shortcut(x))


def pooled(width, outputs):
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, outputs)]


def resnet(c):
    """He et al. 2016, of basic blocks."""
    layers, width = normed(c["channels"], 64, 7, 2) + [nn.MaxPool2d(3, 2, 1)], 64
    for stage, depth in enumerate(c["depths"]):
        for block in range(depth):
            outputs, stride = 64 << stage, 2 if stage and not block else 1
            shortcut = [] if outputs == width and stride == 1 else normed(width, outputs, 1, stride, act=None)
            layers.append(Residual(normed(width, outputs, 3, stride) + normed(outputs, outputs, 3, act=None), shortcut,
                                   nn.ReLU(inplace=True)))
            width = outputs
    return nn.Sequential(*layers, *pooled(width, c["outputs"]))


def mobilenet_v2(c):
    """Sandler et al. 2018, at width 1."""
    layers, width = normed(c["channels"], 32, 3, 2, act=nn.ReLU6), 32
    for expand, outputs, depth, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
                                           (6, 160, 3, 2), (6, 320, 1, 1)):
        for block in range(depth):
            step, inner = 1 if block else stride, expand * width
            body = normed(width, inner, act=nn.ReLU6) if expand > 1 else []
            body += normed(inner, inner, 3, step, inner, nn.ReLU6) + normed(inner, outputs, act=None)
            layers.append(Residual(body, [], nn.Identity()) if width == outputs and step == 1 else nn.Sequential(*body))
            width = outputs
    return nn.Sequential(*layers, *normed(width, 1280, act=nn.ReLU6), *pooled(1280, c["outputs"]))


class ChannelNorm(nn.LayerNorm):
    """Layer norm over the channels of [B, C, H, W]."""

    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNextBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.mix = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.mlp = nn.Sequential(nn.LayerNorm(width, eps=1e-6), nn.Linear(width, 4 * width), nn.GELU(),
                                 nn.Linear(4 * width, width))
        self.scale = nn.Parameter(torch.full((width,), 1e-6))

    def forward(self, x):
        return x + (self.scale * self.mlp(self.mix(x).permute(0, 2, 3, 1))).permute(0, 3, 1, 2)


def convnext(c):
    """Liu et al. 2022."""
    layers, width = [], 96
    for stage, depth in enumerate(c["depths"]):
        outputs = 96 << stage
        layers += [ChannelNorm(width, eps=1e-6), nn.Conv2d(width, outputs, 2, 2)] if stage else \
            [nn.Conv2d(c["channels"], width, 4, 4), ChannelNorm(width, eps=1e-6)]
        layers += [ConvNextBlock(outputs) for _ in range(depth)]
        width = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(width, eps=1e-6),
                         nn.Linear(width, c["outputs"]))


KINDS = {"resnet": resnet, "mobilenet_v2": mobilenet_v2, "convnext": convnext}
