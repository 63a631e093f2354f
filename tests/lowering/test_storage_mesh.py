"""Device meshes of a plan, on a fake group of eight ranks; and torch's private names that they lean on."""

from collections.abc import Iterator

import pytest
from torch.distributed.device_mesh import DeviceMesh

from meshlang.lowering.mesh import device_mesh, storage_mesh
from meshlang.mesh import Mesh, MeshAxis
from meshlang.testing.fake import fake_group

MESH = Mesh(axes=tuple(MeshAxis(name=name, size=2) for name in ("copies", "dp", "tp")))


@pytest.fixture
def mesh() -> Iterator[DeviceMesh]:
    """copies, dp and tp of two ranks each, as rank 5 sees them."""
    with fake_group(8, rank=5):
        yield device_mesh(MESH, "cpu")


def test_mesh_has_the_axes_of_the_plan(mesh: DeviceMesh) -> None:
    """Names, sizes and coordinates are the plan's."""
    assert mesh.mesh_dim_names == MESH.names
    assert tuple(mesh.get_coordinate() or ()) == tuple(MESH.coordinate(5).values())


def test_stored_axes_are_one_dimension(mesh: DeviceMesh) -> None:
    """Parameters are cut over all stored axes as over one, in mesh order."""
    assert storage_mesh(mesh, (), ("copies", "dp")).mesh.tolist() == [1, 3, 5, 7]


def test_copies_stand_before_parts(mesh: DeviceMesh) -> None:
    """With both, the first dimension sums and the second cuts, whatever the mesh order."""
    assert storage_mesh(mesh, ("copies",), ("dp",)).mesh.tolist() == [[1, 3], [5, 7]]
    assert storage_mesh(mesh, ("dp",), ("copies",)).mesh.tolist() == [[1, 5], [3, 7]]


def test_copies_alone_are_cut_in_one_part(mesh: DeviceMesh) -> None:
    """Without stored axes the second dimension is there, and of one rank."""
    assert storage_mesh(mesh, ("dp",), ()).mesh.tolist() == [[5], [7]]


@pytest.mark.parametrize("name", ["_flatten", "_unflatten", "_concatenate"])
def test_private_name_of_torch_is_there(name: str) -> None:
    """Storage meshes are made by private methods of DeviceMesh; lowering/mesh.py is the only user."""
    assert callable(getattr(DeviceMesh, name))
