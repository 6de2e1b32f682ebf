"""AdaDecay in a plain loop, with a look at θ: python examples/plain_loop.py."""

import torch
from sklearn.datasets import load_digits

from adadecay import AdaDecay
from adadecay.diagnostics import measure

torch.manual_seed(0)
images, labels = load_digits(return_X_y=True)
x = torch.tensor(images, dtype=torch.float32) / 16
y = torch.tensor(labels)
train, test = torch.arange(len(x)).split([1400, len(x) - 1400])

model = torch.nn.Sequential(
    torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)
)
# torch.optim.SGD with one word changed.
optimizer = AdaDecay(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20)

for epoch in range(20):
    for rows in train[torch.randperm(len(train))].split(64):
        loss = torch.nn.functional.cross_entropy(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    schedule.step()
    accuracy = (model(x[test]).argmax(1) == y[test]).float().mean()
    if epoch % 5 == 4:
        print(f"epoch {epoch + 1}: loss {loss:.3f}, test accuracy {accuracy:.1%}")

for layer in measure(optimizer, model=model):
    print(f"{layer.name}: mean θ {layer.mean:.2f}, decay {layer.effective_decay:.1e}")
