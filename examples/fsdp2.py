"""FSDP2 on the CPU: torchrun --standalone --nproc-per-node 2 examples/fsdp2.py.

Every rank holds a part of each layer; θ is still of the whole layer, for one small
collective a step. Writes a checkpoint that any number of ranks can load.
"""

import shutil
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import checkpoint
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.debug import CommDebugMode

from adadecay import AdaDecay


def make(mesh):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 33), nn.Tanh(), nn.Linear(33, 5))
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    # After fully_shard: the parameters are DTensors from there on.
    return model, AdaDecay(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)


def train(model, optimizer, steps, rank):
    generator = torch.Generator().manual_seed(rank)  # every rank its own data
    for _ in range(steps):
        x = torch.randn(32, 20, generator=generator)
        loss = nn.functional.mse_loss(model(x), x[:, :5] * x[:, 5:10])
        optimizer.zero_grad()
        loss.backward()
        with CommDebugMode() as traffic:
            optimizer.step()
    return loss.item(), traffic.get_total_counts()


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (size,))
    model, optimizer = make(mesh)
    loss, collectives = train(model, optimizer, 100, rank)
    if rank == 0:
        print(f"loss {loss:.3f}, {collectives} collective in the optimizer's step")
    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder)
    states = dict(
        zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True)
    )
    checkpoint.save(states, checkpoint_id=folder[0])
    model, optimizer = make(mesh)
    states = dict(
        zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True)
    )
    checkpoint.load(states, checkpoint_id=folder[0])
    set_state_dict(
        model,
        optimizer,
        model_state_dict=states["model"],
        optim_state_dict=states["optimizer"],
    )
    loss, _ = train(model, optimizer, 100, rank)
    if rank == 0:
        print(f"resumed from the checkpoint: loss {loss:.3f}")
        shutil.rmtree(folder[0])
    dist.barrier()  # nobody tears the group down while another still talks
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
