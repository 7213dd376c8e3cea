/* A page to read or print. */

const button = document.getElementById("print");
button.hidden = false;
button.addEventListener("click", () => print());
