// Files of one's own: dropped on the page, or chosen.

import { node } from "./view.js";

/** The most that the server takes. */
const MOST = 20 * 2 ** 20;

/**
 * Offer a room's drop: a button in `box`, and the whole page.
 * @param {() => object} room the room that is open
 * @param {(description: object) => void} opened called with the room as the file opens it
 * @param {(sentence: string) => void} say
 */
export function offerDrops(box, room, opened, say) {
  const input = node("input", { type: "file", id: "file" });
  const label = node("label", { htmlFor: "file", className: "drop" });
  const words = node("span");
  label.append(node("b", { textContent: "Your own data" }), words);
  input.addEventListener("change", () => {
    if (input.files.length) send(input.files[0]);
    input.value = "";
  });
  box.replaceChildren(label, input);

  const send = async (file) => {
    if (file.size > MOST) {
      say(`${file.name} has ${Math.round(file.size / 2 ** 20)} MB; at most 20 are taken.`);
      return;
    }
    say(`Reading ${file.name} …`);
    const answer = await fetch(`api/${room().name}/file`, {
      method: "POST",
      headers: { "Content-Type": "application/octet-stream", "X-Name": encodeURIComponent(file.name) },
      body: file,
    }).catch(() => null);
    const told = answer ? await answer.json().catch(() => ({})) : { error: "The explorer's server does not answer." };
    if (!answer || !answer.ok) say(told.error || `The server refused (${answer.status}).`);
    else {
      opened(told);
      say(`Opened ${file.name}; it stays in memory.`);
    }
  };

  const holds = (event) => room()?.drops && [...(event.dataTransfer?.types || [])].includes("Files");
  addEventListener("dragover", (event) => {
    if (!holds(event)) return;
    event.preventDefault();
    label.classList.add("over");
  });
  for (const end of ["dragleave", "drop"]) addEventListener(end, () => label.classList.remove("over"));
  addEventListener("drop", (event) => {
    if (!holds(event)) return;
    event.preventDefault();
    send(event.dataTransfer.files[0]);
  });
  return () => {
    box.hidden = !room().drops;
    words.textContent = room().drops ? `: drop or choose ${room().drops}; at most 20 MB, kept in memory only.` : "";
  };
}
