"""JAX: AdaDecay by optax, and adaptive decay around Adam.

python examples/optax_example.py
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

from adadecay.optax import adadecay, add_adaptive_decayed_weights

OPTIMIZERS = {
    "AdaDecay": adadecay(0.1, momentum=0.9, weight_decay=5e-4),
    "Adam, decaying adaptively": optax.chain(
        # θ is of the gradient, so what Adam makes of it happens inside.
        add_adaptive_decayed_weights(0.05, inner=optax.scale_by_adam()),
        optax.scale_by_learning_rate(1e-3),
    ),
}


def predict(params, x):
    hidden = jax.nn.relu(x @ params["hidden"]["kernel"] + params["hidden"]["bias"])
    return hidden @ params["out"]["kernel"] + params["out"]["bias"]


def loss_of(params, x, y):
    scores = predict(params, x)
    return optax.softmax_cross_entropy_with_integer_labels(scores, y).mean()


def start():
    keys = jax.random.split(jax.random.key(0))
    return {
        name: {
            "kernel": jax.random.normal(key, shape) / np.sqrt(shape[0]),
            "bias": jnp.zeros(shape[1]),
        }
        for name, key, shape in zip(
            ("hidden", "out"), keys, ((64, 64), (64, 10)), strict=True
        )
    }


def main():
    images, labels = load_digits(return_X_y=True)
    x, y = np.float32(images / 16), np.int32(labels)
    for name, optimizer in OPTIMIZERS.items():

        @jax.jit
        def step(params, state, x, y, optimizer=optimizer):
            grads = jax.grad(loss_of)(params, x, y)
            updates, state = optimizer.update(grads, state, params)
            return optax.apply_updates(params, updates), state

        params = start()
        state = optimizer.init(params)
        rng = np.random.default_rng(0)
        for _ in range(20):
            for rows in rng.permutation(1400)[:1344].reshape(-1, 64):
                params, state = step(params, state, x[rows], y[rows])
        accuracy = (predict(params, x[1400:]).argmax(1) == y[1400:]).mean()
        print(f"{name}: test accuracy {accuracy:.1%}")


if __name__ == "__main__":
    main()
