"""Models of series for torch_examples.py, as a good PyTorch user writes them: windows [B, T, C] to forecasts [B, H, C]."""
import torch
import torch.nn as nn
import torch.nn.functional as F

WINDOW = dict(context=336, outputs=96, channels=7)
CASES = {
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


KINDS = {"tcn": TCN, "nbeats": NBeats, "tide": TiDE, "lstm": Recurrent, "gru": Recurrent}
