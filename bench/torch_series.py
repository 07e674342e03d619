"""Models of series for torch_examples.py, as a good PyTorch user writes them: windows [B, T, C] to forecasts [B, H, C]."""
import torch
import torch.nn as nn
import torch.nn.functional as F

WINDOW = dict(context=336, outputs=96, channels=7)
CASES = {
    "etth1_dlinear": dict(kind="dlinear", kernel=25, **WINDOW),
    "etth1_patchtst": dict(kind="patchtst", layers=3, width=16, heads=4, mlp_width=128, patch=16, stride=8, dropout=0.3,
                           **WINDOW),
    "etth1_tcn": dict(kind="tcn", layers=6, width=32, kernel=3, **WINDOW),
    "etth1_nbeats": dict(kind="nbeats", blocks=3, layers=4, width=256, **WINDOW),
    "etth1_tide": dict(kind="tide", layers=2, decoder_layers=2, width=256, decoder_width=16, temporal_width=32, **WINDOW),
    "etth1_lstm": dict(kind="lstm", layers=2, width=64, **WINDOW),
    "etth1_gru": dict(kind="gru", layers=2, width=64, **WINDOW),
}


class Standardized(nn.Module):
    """A network of windows whose channels are standardized."""

    def forward(self, x):
        mean = x.mean(1, keepdim=True)
        deviation = torch.sqrt(x.var(1, correction=0, keepdim=True) + 1e-5)
        return self.forecast((x - mean) / deviation) * deviation + mean


class DLinear(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.side = c["kernel"] // 2
        self.average = nn.AvgPool1d(c["kernel"], 1)
        self.seasonal, self.trend = nn.Linear(c["context"], c["outputs"]), nn.Linear(c["context"], c["outputs"])

    def forward(self, x):
        x = x.transpose(1, 2)
        trend = self.average(F.pad(x, (self.side, self.side), mode="replicate"))
        return (self.seasonal(x - trend) + self.trend(trend)).transpose(1, 2)


class PatchBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        width = c["width"]
        self.heads, self.p = c["heads"], c["dropout"]
        self.norm_1, self.norm_2 = nn.BatchNorm1d(width), nn.BatchNorm1d(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, c["mlp_width"]), nn.GELU(), nn.Dropout(self.p),
                                 nn.Linear(c["mlp_width"], width))

    def forward(self, x):
        rows, count, width = x.shape
        y = self.norm_1(x.flatten(0, 1))
        q, k, v = self.qkv(y).view(rows, count, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(rows, count, width)
        x = x + F.dropout(self.out(y), self.p, self.training)
        return x + F.dropout(self.mlp(self.norm_2(x.flatten(0, 1))), self.p, self.training).view_as(x)


class PatchTST(Standardized):
    def __init__(self, c):
        super().__init__()
        self.patch, self.stride, width = c["patch"], c["stride"], c["width"]
        count = (c["context"] - self.patch) // self.stride + 1
        self.embedding, self.drop = nn.Linear(self.patch, width), nn.Dropout(c["dropout"])
        self.positions = nn.Parameter(0.02 * torch.randn(count, width))
        self.layers = nn.Sequential(*(PatchBlock(c) for _ in range(c["layers"])))
        self.head = nn.Linear(count * width, c["outputs"])

    def forecast(self, x):
        patches = x.transpose(1, 2).flatten(0, 1).unfold(1, self.patch, self.stride)
        y = self.layers(self.drop(self.embedding(patches) + self.positions))
        return self.head(self.drop(y.flatten(1))).view(len(x), x.shape[2], -1).transpose(1, 2)


class Block(nn.Module):
    def __init__(self, c, channels, dilation):
        super().__init__()
        self.padding = (c["kernel"] - 1) * dilation
        self.conv1 = nn.Conv1d(channels, c["width"], c["kernel"], dilation=dilation)
        self.conv2 = nn.Conv1d(c["width"], c["width"], c["kernel"], dilation=dilation)
        self.downsample = nn.Conv1d(channels, c["width"], 1) if channels != c["width"] else nn.Identity()

    def forward(self, x):
        y = F.relu(self.conv1(F.pad(x, (self.padding, 0))))
        y = F.relu(self.conv2(F.pad(y, (self.padding, 0))))
        return F.relu(y + self.downsample(x))


class TCN(Standardized):
    def __init__(self, c):
        super().__init__()
        self.channels = c["channels"]
        self.network = nn.Sequential(*(Block(c, c["width"] if i else c["channels"], 2 ** i) for i in range(c["layers"])))
        self.linear = nn.Linear(c["width"], c["channels"] * c["outputs"])

    def forecast(self, x):
        return self.linear(self.network(x.transpose(1, 2))[:, :, -1]).view(len(x), self.channels, -1).transpose(1, 2)


class NBeats(Standardized):
    def __init__(self, c):
        super().__init__()
        self.sizes = c["context"], c["outputs"]

        def block():
            layers, width = [], c["context"]
            for _ in range(c["layers"]):
                layers += [nn.Linear(width, c["width"]), nn.ReLU()]
                width = c["width"]
            return nn.Sequential(*layers, nn.Linear(width, sum(self.sizes)))

        self.blocks = nn.ModuleList(block() for _ in range(c["blocks"]))

    def forecast(self, x):
        x, forecast = x.transpose(1, 2), 0
        for block in self.blocks:
            back, ahead = block(x).split(self.sizes, -1)
            x, forecast = x - back, forecast + ahead
        return forecast.transpose(1, 2)


class Residual(nn.Module):
    def __init__(self, inputs, hidden, outputs, norm=True):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(inputs, hidden), nn.Linear(hidden, outputs), nn.Linear(inputs, outputs)
        self.ln = nn.LayerNorm(outputs) if norm else nn.Identity()

    def forward(self, x):
        return self.ln(self.fc2(F.relu(self.fc1(x))) + self.fc3(x))


class TiDE(Standardized):
    def __init__(self, c):
        super().__init__()
        width, self.rows = c["width"], (c["outputs"], c["decoder_width"])
        inputs = [c["context"]] + [width] * (c["layers"] + c["decoder_layers"] - 1)
        outputs = inputs[1:] + [c["outputs"] * c["decoder_width"]]
        self.blocks = nn.Sequential(*(Residual(i, width, o) for i, o in zip(inputs, outputs)))
        self.temporal = Residual(c["decoder_width"], c["temporal_width"], 1, norm=False)
        self.straight = nn.Linear(c["context"], c["outputs"])

    def forecast(self, x):
        x = x.transpose(1, 2)
        y = self.temporal(self.blocks(x).unflatten(-1, self.rows)).squeeze(-1)
        return (y + self.straight(x)).transpose(1, 2)


class Recurrent(Standardized):
    def __init__(self, c):
        super().__init__()
        make = nn.LSTM if c["kind"] == "lstm" else nn.GRU
        self.channels = c["channels"]
        self.layers = make(c["channels"], c["width"], c["layers"], batch_first=True)
        self.head = nn.Linear(c["width"], c["channels"] * c["outputs"])

    def forecast(self, x):
        return self.head(self.layers(x)[0][:, -1]).view(len(x), self.channels, -1).transpose(1, 2)


KINDS = {"dlinear": DLinear, "patchtst": PatchTST, "tcn": TCN, "nbeats": NBeats, "tide": TiDE, "lstm": Recurrent, "gru": Recurrent}
