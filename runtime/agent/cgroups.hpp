#pragma once

/// The groups in which a sandbox's processes are limited. The agent is in none of them.
namespace insula::runtime::agent {

/// Those of the commands, and those in which something is kept for the sandbox's owner.
enum class cgroup_set { commands, reserve };

/// `files`: how many descriptors there are from first_cgroup_fd on, those of both sets. False: it
/// cannot be so many.
bool open_cgroups(int files);

/// This process counts against the sandbox's limits from here on, and not against the agent's. No
/// limit refuses that.
bool enter(cgroup_set where);

/// Has another process of the sandbox be in the reserve. What it starts from now on is there too.
/// Waits for every fork on the machine, and is for a child of move_in_child().
void move_to_reserve(int pid);

/// Does `work` in a child, with `about`; not if there are as many of these as there may be.
void move_in_child(void (*work)(int about), int about);

/// To be called before something is made there.
void use_reserve();

/// Once the commands are no longer short of anything, what is in the reserve becomes one of them. A
/// child does it, since moving waits for every fork on the machine. To be called each second as
/// long as it answers true: something may be there.
bool empty_reserve();

/// True: it was such a child that has ended.
bool mover_ended(int pid);

/// Those that something inside has stopped.
void let_movers_go_on();

} // namespace insula::runtime::agent
